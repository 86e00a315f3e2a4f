/*
 * machines.h: a driver over several machines: rank 0's part of each model is computed by a driver of its own, those of
 * the other ranks by workers (worker.h).  Memory that it speaks of is that of each rank.  When a rank is gone its
 * steps fail with -ENODEV and the rank's name.
 */
#pragma once

#include "runtime/driver.h"
#include "runtime/machines/link.h"

/* Takes the driver and the link, of rank 0 of at least two, also when it fails. */
int ig_machines_open(struct ig_driver *own, struct ig_link *link, uint32_t strict,
		     struct ig_driver **out, struct ig_error *err);
