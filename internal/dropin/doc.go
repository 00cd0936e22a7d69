// Package dropin makes the libraries that unmodified verbs programs load: libibverbs.so.1, and beside it stubs of the
// libraries that such programs were linked with too. It compiles the sources that the binary carries, once for each
// compiler and each version of them, into the user's cache:
//
//	libs, err := dropin.Find(ctx) // installed, or in the cache, or compiled now
//	...
//	cmd.Env = dropin.Environ(os.Environ(), libs.Variables(os.Environ(), false))
//
// The C sources stand in the folder dropin of the repository; their tests that need no device are here.
package dropin
