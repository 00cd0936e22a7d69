package verbs

// Arenas returns how many memories the context's rings and buffers are carved from.
func (c *Context) Arenas() int { return c.arenas.Len() }
