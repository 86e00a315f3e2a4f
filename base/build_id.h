/* build_id.h: which declarations of tier 2 of the module ABI this was built from. */
#ifndef INGOT_BASE_BUILD_ID_H
#define INGOT_BASE_BUILD_ID_H

extern const char ig_build_id[];

#endif
