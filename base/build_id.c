/* build_id.c: see build_id.h.  The one object of the daemon that the id is compiled into. */
#include "base/build_id.h"

#include <ingot/build_id.h>

const char ig_build_id[] = IG_BUILD_ID;
