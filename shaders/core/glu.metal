// glu.metal: gated linear units, elements of two bytes (glu.h).
#include "glu.h"

#ifdef MSL_NV
#define GLU(name, format) \
	instantiate_kernel("glu_" name "_few", glu_few, format, shape_few) \
	instantiate_kernel("glu_" name "_tile", glu_tile, format, shape_tile, true)
#else
#define GLU(name, format) \
	instantiate_kernel("glu_" name "_few8", glu_few, format, shape_few8) \
	instantiate_kernel("glu_" name "_few16", glu_few, format, shape_few16) \
	instantiate_kernel("glu_" name "_tile", glu_tile, format, shape_tile, true)
#endif

PRODUCT_FORMATS(GLU)
