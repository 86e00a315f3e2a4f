// Apple's library of products on tensors, as far as shaders use it: msl_tensor.h.
#include "../msl_tensor.h"
