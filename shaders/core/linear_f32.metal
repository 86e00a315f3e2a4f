// linear_f32.metal: products with weights side by side, elements of float (linear.h).
#include "linear.h"

#ifdef MSL_NV
#define LINEAR(name, format) \
	instantiate_kernel("linear_" name "_few", linear_few, format, shape_few_f32) \
	instantiate_kernel("linear_" name "_tile", linear_tile, format, shape_tile_f32, true)
#else
#define LINEAR(name, format) \
	instantiate_kernel("linear_" name "_few8", linear_few, format, shape_few8_f32) \
	instantiate_kernel("linear_" name "_few16", linear_few, format, shape_few16_f32) \
	instantiate_kernel("linear_" name "_tile", linear_tile, format, shape_tile_f32, true)
#endif

PRODUCT_FORMATS_F32(LINEAR)
