/* build_id.h: the id of the module ABI's tier 2 declarations that this program was built from. */
#ifndef INGOT_BASE_BUILD_ID_H
#define INGOT_BASE_BUILD_ID_H

extern const char ig_build_id[];

#endif
