/* error.h: errors of ABI functions.  Tier 1 (module.h). */
#ifndef INGOT_ERROR_H
#define INGOT_ERROR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* An error with text for people.  The code is the negative errno that the function returns. */
struct ig_error {
	int32_t code;
	char text[508];
};

/* Set *err (may be NULL) and return code: `return ig_fail(err, -EINVAL, "…")`. */
__attribute__((format(printf, 3, 4))) static inline int ig_fail(struct ig_error *err, int code,
								const char *fmt, ...)
{
	if (err) {
		va_list ap;
		err->code = code;
		va_start(ap, fmt);
		vsnprintf(err->text, sizeof err->text, fmt, ap);
		va_end(ap);
	}
	return code;
}

#endif
