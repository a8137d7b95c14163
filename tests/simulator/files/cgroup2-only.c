/* Preloaded into slurmd on test hosts whose outer machine mounts cgroup v1 controllers beside cgroup2.
 *
 * Inside such a host /sys/fs/cgroup is pure cgroup2, but /proc/PID/cgroup still lists the outer machine's v1
 * hierarchies, and slurmd 24.11 refuses to start ("Hybrid mode is not supported"). Reads of /proc/PID/cgroup
 * therefore get the cgroup2 line ("0::...") alone. Everything else passes through.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_cgroup_file(const char *path)
{
	if (!path || strncmp(path, "/proc/", 6))
		return 0;
	const char *rest = strchr(path + 6, '/');
	return rest && !strcmp(rest, "/cgroup");
}

/* Returns a descriptor of an anonymous file with the cgroup2 line, or -1 with errno set. */
static int open_filtered(const char *path)
{
	enum { size = 16384 };
	char text[size + 1];
	ssize_t length = 0, got;
	int source = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);

	if (source < 0)
		return source;
	while (length < size && (got = read(source, text + length, size - length)) > 0)
		length += got;
	close(source);
	text[length] = 0;

	int filtered = memfd_create("cgroup", MFD_CLOEXEC);
	if (filtered < 0)
		return filtered;
	char *place;
	for (char *line = strtok_r(text, "\n", &place); line; line = strtok_r(NULL, "\n", &place))
		if (!strncmp(line, "0::", 3))
			dprintf(filtered, "%s\n", line);
	lseek(filtered, 0, SEEK_SET);
	return filtered;
}

#define WRAP_OPEN(name)                                                                  \
	int name(const char *path, int flags, ...)                                       \
	{                                                                                \
		static int (*real)(const char *, int, ...);                              \
		mode_t mode = 0;                                                         \
		if (flags & (O_CREAT | O_TMPFILE)) {                                     \
			va_list rest;                                                    \
			va_start(rest, flags);                                           \
			mode = va_arg(rest, mode_t);                                     \
			va_end(rest);                                                    \
		}                                                                        \
		if (is_cgroup_file(path) && (flags & O_ACCMODE) == O_RDONLY)             \
			return open_filtered(path);                                      \
		if (!real)                                                               \
			real = dlsym(RTLD_NEXT, #name);                                  \
		return real(path, flags, mode);                                          \
	}
WRAP_OPEN(open)
WRAP_OPEN(open64)

#define WRAP_FOPEN(name)                                                                 \
	FILE *name(const char *path, const char *mode)                                   \
	{                                                                                \
		static FILE *(*real)(const char *, const char *);                        \
		if (is_cgroup_file(path) && mode[0] == 'r') {                            \
			int filtered = open_filtered(path);                              \
			return filtered < 0 ? NULL : fdopen(filtered, "r");              \
		}                                                                        \
		if (!real)                                                               \
			real = dlsym(RTLD_NEXT, #name);                                  \
		return real(path, mode);                                                 \
	}
WRAP_FOPEN(fopen)
WRAP_FOPEN(fopen64)
