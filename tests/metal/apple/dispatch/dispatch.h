/* dispatch.h: what runtime/metal uses of Apple's libdispatch, for the double. */
#ifndef FAKE_DISPATCH_H
#define FAKE_DISPATCH_H

#include <stddef.h>
#include <stdint.h>

/* Apple's are objects of several types that share some functions. */
typedef struct fake_dispatch *dispatch_object_t;
typedef struct fake_dispatch *dispatch_queue_t;
typedef struct fake_dispatch *dispatch_source_t;
typedef struct fake_dispatch *dispatch_data_t;
typedef void (*dispatch_function_t)(void *context);
typedef const struct fake_dispatch_type *dispatch_source_type_t;
typedef struct fake_dispatch_attr *dispatch_queue_attr_t;

extern const struct fake_dispatch_type fake_pressure_type;
#define DISPATCH_SOURCE_TYPE_MEMORYPRESSURE (&fake_pressure_type)
#define DISPATCH_MEMORYPRESSURE_NORMAL 0x01
#define DISPATCH_MEMORYPRESSURE_WARN 0x02
#define DISPATCH_MEMORYPRESSURE_CRITICAL 0x04
#define DISPATCH_DATA_DESTRUCTOR_DEFAULT NULL

dispatch_queue_t dispatch_queue_create(const char *label, dispatch_queue_attr_t attr);
dispatch_source_t dispatch_source_create(dispatch_source_type_t type, uintptr_t handle,
					 unsigned long mask, dispatch_queue_t queue);
void dispatch_set_context(dispatch_object_t object, void *context);
void dispatch_source_set_event_handler_f(dispatch_source_t source, dispatch_function_t handler);
void dispatch_resume(dispatch_object_t object);
void dispatch_source_cancel(dispatch_source_t source);
unsigned long dispatch_source_get_data(dispatch_source_t source);
void dispatch_sync_f(dispatch_queue_t queue, void *context, dispatch_function_t work);
/* The last one is a block on Apple's systems. */
dispatch_data_t dispatch_data_create(const void *buffer, size_t size, dispatch_queue_t queue,
				     void *destructor);
void dispatch_release(dispatch_object_t object);

#endif
