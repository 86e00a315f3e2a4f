// tiles_unpack.metal: weights in tiles to rows (tiles_unpack.h).
#include "tiles_unpack.h"

TILES_UNPACK("")
