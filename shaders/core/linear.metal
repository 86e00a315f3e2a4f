// linear.metal: products with weights side by side, elements of two bytes (linear.h).
#include "linear.h"

#ifdef MSL_NV
#define LINEAR(name, format) \
	instantiate_kernel("linear_" name "_few", linear_few, format, shape_few) \
	instantiate_kernel("linear_" name "_tile", linear_tile, format, shape_tile, true)
#else
#define LINEAR(name, format) \
	instantiate_kernel("linear_" name "_few8", linear_few, format, shape_few8) \
	instantiate_kernel("linear_" name "_few16", linear_few, format, shape_few16) \
	instantiate_kernel("linear_" name "_tile", linear_tile, format, shape_tile, true)
#endif

PRODUCT_FORMATS(LINEAR)
