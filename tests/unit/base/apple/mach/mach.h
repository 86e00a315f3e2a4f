/*
 * mach/mach.h: as much of macOS' header as base/machine.c needs, for test_machine_apple.c, which answers
 * in the system's place.
 */
#pragma once

#include <stdint.h>

typedef int kern_return_t;
typedef unsigned task_t;
typedef unsigned mach_msg_type_number_t;
typedef int *task_info_t;

typedef struct {
	uint64_t virtual_size, resident_size, phys_footprint;
} task_vm_info_data_t;

#define KERN_SUCCESS 0
#define TASK_VM_INFO 22
#define TASK_VM_INFO_COUNT ((mach_msg_type_number_t)(sizeof(task_vm_info_data_t) / sizeof(int)))

task_t mach_task_self(void);
kern_return_t task_info(task_t task, unsigned flavor, task_info_t out, mach_msg_type_number_t *n);
