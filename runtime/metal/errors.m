/*
 * errors.m: errors of a GPU.  Each code of a failed command buffer gets an errno and a text of
 * ours; the system's text follows.  After -EIO and -ENOMEM the device can run the next step.  After
 * -ENODEV it is lost: the system executes nothing of this process any more.
 */
#include "runtime/metal/metal_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Codes without a name in Apple's headers are those of the kernel's driver, which some versions
 * of the system return as the code. */
static const struct failure {
	NSInteger code;
	int rc;
	const char *text;
} failures[] = {
	{ 1, -EIO, "an internal error of the system" },
	{ 2, -EIO, "it took longer than the system allows" },
	{ 3, -EIO, "a kernel touched memory that is not the GPU's" },
	{ 4, -ENODEV, "the system has taken the GPU away from this process" },
	{ 5, -EIO, "dropped because of another process's failure" },
	{ 7, -EIO, "this process may not use the GPU now" },
	{ 8, -ENOMEM, "the GPU has no memory left" },
	{ 9, -EIO, "a buffer was gone or never the GPU's" },
	{ 10, -EIO, "memory without backing was touched" },
	{ 11, -ENODEV, "the GPU was removed" },
	{ 12, -EIO, "a kernel's stack overflowed" },
	{ 14, -EIO, "stopped because it held up the display" },
};

/* Codes of the driver in the text of an internal error: "… (0000000e:kIOGPU…)". */
static const struct failure driver_failures[] = {
	{ 0x2, -EIO, "it took longer than the system allows" },
	{ 0x3, -EIO, "the GPU hung" },
	{ 0x4, -ENODEV, "the system ignores this process after earlier failures" },
	{ 0x5, -EIO, "dropped because of another process's failure" },
	{ 0x8, -ENOMEM, "the GPU has no memory left" },
	{ 0xb, -EIO, "a kernel touched memory that is not the GPU's" },
	{ 0xe, -EIO, "stopped because it held up the display" },
};

static const struct failure *find(const struct failure *f, size_t n, NSInteger code)
{
	for (size_t i = 0; i < n; i++)
		if (f[i].code == code)
			return &f[i];
	return NULL;
}

/* The driver's code in an error's text, or -1. */
static NSInteger driver_code(const char *text)
{
	const char *at = strstr(text, ":kIOGPU");

	if (!at || at - text < 9 || at[-9] != '(')
		return -1;
	char digits[9], *end;
	memcpy(digits, at - 8, 8);
	digits[8] = '\0';
	long code = strtol(digits, &end, 16);
	return *end ? -1 : (NSInteger)code;
}

const char *ig_metal_error_text(NSError *e)
{
	const char *text = e ? [[e localizedDescription] UTF8String] : NULL;
	return text ? text : "the system gave no reason";
}

int ig_metal_fail_lost(struct metal_device *d, struct ig_error *err)
{
	return ig_fail(err, -ENODEV,
		       "metal: GPU '%s' is gone; only a restart of this process brings it back",
		       d->facts.name);
}

int ig_metal_fail_buffer(struct metal_device *d, id<MTLCommandBuffer> b, const char *what,
			 struct ig_error *err)
{
	NSError *e = [b error];
	const char *text = ig_metal_error_text(e);
	NSInteger code = e ? [e code] : 0;
	const struct failure *f = NULL;

	if (code == 1)
		f = find(driver_failures, sizeof driver_failures / sizeof *driver_failures,
			 driver_code(text));
	if (!f)
		f = find(failures, sizeof failures / sizeof *failures, code);
	int rc = f ? f->rc : -EIO;
	if (rc == -ENODEV)
		__atomic_store_n(&d->gone, true, __ATOMIC_SEQ_CST);
	return ig_fail(err, rc, "metal: GPU '%s' failed in %s: %s (error %ld: %s)", d->facts.name,
		       what, f ? f->text : "an error that has no name", (long)code, text);
}
