// moe_tiles_unpack.metal: experts' weights in tiles to rows (core/tiles_unpack.h).
#include "../core/tiles_unpack.h"

TILES_UNPACK("moe_")
