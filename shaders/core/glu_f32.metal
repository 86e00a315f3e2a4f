// glu_f32.metal: gated linear units, elements of float (glu.h).
#include "glu.h"

#ifdef MSL_NV
#define GLU(name, format) \
	instantiate_kernel("glu_" name "_few", glu_few, format, shape_few_f32) \
	instantiate_kernel("glu_" name "_tile", glu_tile, format, shape_tile_f32, true)
#else
#define GLU(name, format) \
	instantiate_kernel("glu_" name "_few8", glu_few, format, shape_few8_f32) \
	instantiate_kernel("glu_" name "_few16", glu_few, format, shape_few16_f32) \
	instantiate_kernel("glu_" name "_tile", glu_tile, format, shape_tile_f32, true)
#endif

PRODUCT_FORMATS_F32(GLU)
