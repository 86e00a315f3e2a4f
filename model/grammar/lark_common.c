/* lark_common.c: the terminals that "%import common.NAME" brings, as expressions. */
#include "model/grammar/lark_private.h"

#include <string.h>

#define DIGITS "[0-9]+"
#define DECIMAL "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"
#define EXPONENT "[eE][+-]?[0-9]+"
#define FLOAT "(?:[0-9]+" EXPONENT "|" DECIMAL "(?:" EXPONENT ")?)"
#define NUMBER "(?:" FLOAT "|[0-9]+)"

static const struct {
	const char *name, *regex;
} terminals[] = {
	{ "CNAME", "[A-Za-z_][A-Za-z_0-9]*" },
	{ "CPP_COMMENT", "//[^\n]*" },
	{ "CR", "\\r" },
	{ "C_COMMENT", "/\\*(?:[^*]|\\*+[^*/])*\\*+/" },
	{ "DECIMAL", DECIMAL },
	{ "DIGIT", "[0-9]" },
	{ "ESCAPED_STRING", "\"(?:[^\"\\\\\n]|\\\\[^\n])*\"" },
	{ "FLOAT", FLOAT },
	{ "HEXDIGIT", "[0-9A-Fa-f]" },
	{ "INT", DIGITS },
	{ "LCASE_LETTER", "[a-z]" },
	{ "LETTER", "[A-Za-z]" },
	{ "LF", "\\n" },
	{ "NEWLINE", "(?:\\r?\\n)+" },
	{ "NUMBER", NUMBER },
	{ "SH_COMMENT", "#[^\n]*" },
	{ "SIGNED_FLOAT", "[+-]?" FLOAT },
	{ "SIGNED_INT", "[+-]?" DIGITS },
	{ "SIGNED_NUMBER", "[+-]?" NUMBER },
	{ "SQL_COMMENT", "--[^\n]*" },
	{ "UCASE_LETTER", "[A-Z]" },
	{ "WORD", "[A-Za-z]+" },
	{ "WS", "[ \\t\\f\\r\\n]+" },
	{ "WS_INLINE", "[ \\t]+" },
};

const char *ig_lark_common(const char *name, size_t len)
{
	for (unsigned i = 0; i < sizeof terminals / sizeof terminals[0]; i++)
		if (strlen(terminals[i].name) == len && !memcmp(terminals[i].name, name, len))
			return terminals[i].regex;
	return NULL;
}
