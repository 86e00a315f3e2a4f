/* build_id.c: see build_id.h.  The only object file of the daemon that contains the id. */
#include "base/build_id.h"

#include <ingot/build_id.h>

const char ig_build_id[] = IG_BUILD_ID;
