/*
 * symbol.c: asks addr2line for the place of an address in the source, once a report.
 * It owns nothing; without addr2line a report has no place.
 */
#include "symbol.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__
#include <elf.h>
#include <link.h>

/* A program that is not position-independent has its addresses as the file has them. */
static uintptr_t load_base(const Dl_info *info)
{
	const ElfW(Ehdr) *header = info->dli_fbase;

	return header->e_type == ET_EXEC ? 0 : (uintptr_t)header;
}

static void strip_folder(char *line)
{
	char *slash = strrchr(line, '/');

	if (slash)
		memmove(line, slash + 1, strlen(slash));
	line[strcspn(line, " \n")] = '\0'; /* " (discriminator 3)" */
}

void soft_symbol(const void *pc, char *out, size_t n_bytes)
{
	char command[1024], line[512], exe[512];
	const char *file;
	Dl_info info;
	FILE *f;

	out[0] = '\0';
	if (!dladdr(pc, &info) || !info.dli_fbase)
		return;
	file = info.dli_fname;
	if (!strchr(file, '/')) { /* the program, by the name it was called with */
		ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

		if (n <= 0)
			return;
		exe[n] = '\0';
		file = exe;
	}
	if (strchr(file, '\'') ||
	    snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%llx 2>/dev/null", file,
		     (unsigned long long)((uintptr_t)pc - 1 - load_base(&info))) >=
		    (int)sizeof command)
		return;
	f = popen(command, "re");
	if (!f)
		return;
	while (fgets(line, sizeof line, f)) {
		bool library = strstr(line, "/msl_") || strstr(line, "/portable.h") ||
			       strstr(line, ".cl:") || strstr(line, ":?") || strstr(line, ":0\n");

		if (library || out[0])
			continue;
		strip_folder(line);
		snprintf(out, n_bytes, "%s", line);
	}
	pclose(f);
}
#else
void soft_symbol(const void *pc, char *out, size_t n_bytes)
{
	(void)pc;
	if (n_bytes)
		out[0] = '\0';
}
#endif
