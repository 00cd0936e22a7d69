/* Sentences for the person in front of the terminal. */
#include "softnic.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void sn_say(enum sn_topic topic, const char *format, ...)
{
	static atomic_bool said[SN_SAY_REFUSED + SN_OPERATIONS];
	char line[1024] = "softnicd: ";
	size_t used = strlen(line);
	va_list args;

	if ((size_t)topic >= sizeof said / sizeof said[0] || atomic_exchange(&said[topic], true) || getenv("SOFTNICD_QUIET"))
		return;
	va_start(args, format);
	vsnprintf(line + used, sizeof line - used - 1, format, args);
	va_end(args);
	/* One write, so that lines of several threads and processes do not mix. */
	strcat(line, "\n");
	fputs(line, stderr);
}
