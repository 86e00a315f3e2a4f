/* embedded.h: the files of the page that ingotd serves to browsers, as embed.py puts them into the
 * program. */
#pragma once

#include <stddef.h>

struct ig_page_file {
	const char *name; /* "index.html" */
	const char *type; /* of its content */
	const char *etag; /* quoted; differs for other bytes */
	const char *data;
	size_t len;
};

extern const struct ig_page_file ig_page_files[];
extern const size_t ig_n_page_files;
