/*
 * mpi.c: a transport by Open MPI (ingot/transport.h): messages from point to point, never a call that waits but to begin
 * and to end.  Errors are returned, not fatal, so that ingotd can say which rank is gone; what a rank's death does to
 * the others is decided by mpirun's options.
 */
#include <ingot/transport.h>

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>

#define TAG 1

struct ig_transport_link {
	MPI_Message probed;
	MPI_Status status;
};

static int fail(int rc, const char *what, struct ig_error *err)
{
	char text[MPI_MAX_ERROR_STRING + 1] = "";
	int n = 0;

	MPI_Error_string(rc, text, &n);
	return ig_fail(err, -EIO, "%s: %.300s", what, text);
}

static int open_mpi(struct ig_transport_link **out, uint32_t *rank, uint32_t *n_ranks,
		    struct ig_error *err)
{
	int given = 0, own = 0, all = 0, rc;

	*out = calloc(1, sizeof **out);
	if (!*out)
		return ig_fail(err, -ENOMEM, "no memory for the transport");
	rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given);
	if (rc == MPI_SUCCESS) {
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
		MPI_Comm_rank(MPI_COMM_WORLD, &own);
		MPI_Comm_size(MPI_COMM_WORLD, &all);
	}
	if (rc != MPI_SUCCESS || given < MPI_THREAD_FUNNELED) {
		free(*out);
		*out = NULL;
		return ig_fail(err, -ENOTSUP, "Open MPI can't be started");
	}
	*rank = (uint32_t)own;
	*n_ranks = (uint32_t)all;
	return 0;
}

static void close_mpi(struct ig_transport_link *l)
{
	MPI_Finalize();
	free(l);
}

/* MPI_Finalize would wait for the rank that is gone. */
static void abort_mpi(struct ig_transport_link *l) { free(l); }

static int begin_send(struct ig_transport_link *l, uint32_t to, const void *data, size_t n_bytes,
		      void **transfer, struct ig_error *err)
{
	MPI_Request *r = malloc(sizeof *r);
	int rc;

	if (!r || n_bytes > INT_MAX) {
		free(r);
		return ig_fail(err, -ENOMEM, "a message of %zu bytes", n_bytes);
	}
	rc = MPI_Isend(data, (int)n_bytes, MPI_BYTE, (int)to, TAG, MPI_COMM_WORLD, r);
	if (rc != MPI_SUCCESS) {
		free(r);
		return fail(rc, "MPI_Isend", err);
	}
	*transfer = r;
	return 0;
}

static int probe(struct ig_transport_link *l, uint32_t *from, size_t *n_bytes, struct ig_error *err)
{
	int is = 0, n = 0;
	int rc = MPI_Improbe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &is, &l->probed, &l->status);

	if (rc == MPI_SUCCESS && is)
		rc = MPI_Get_count(&l->status, MPI_BYTE, &n);
	if (rc != MPI_SUCCESS)
		return fail(rc, "MPI_Improbe", err);
	if (!is)
		return 0;
	*from = (uint32_t)l->status.MPI_SOURCE;
	*n_bytes = n < 0 ? 0 : (size_t)n;
	return 1;
}

static int begin_receive(struct ig_transport_link *l, void *data, void **transfer,
			 struct ig_error *err)
{
	MPI_Request *r = malloc(sizeof *r);
	int n = 0, rc;

	if (!r)
		return ig_fail(err, -ENOMEM, "no memory for a message");
	rc = MPI_Get_count(&l->status, MPI_BYTE, &n);
	if (rc == MPI_SUCCESS)
		rc = MPI_Imrecv(data, n, MPI_BYTE, &l->probed, r);
	if (rc != MPI_SUCCESS) {
		free(r);
		return fail(rc, "MPI_Imrecv", err);
	}
	*transfer = r;
	return 0;
}

static int is_done(struct ig_transport_link *l, void *transfer, struct ig_error *err)
{
	int is = 0;
	int rc = MPI_Test(transfer, &is, MPI_STATUS_IGNORE);

	if (rc == MPI_SUCCESS && !is)
		return 0;
	free(transfer);
	return rc == MPI_SUCCESS ? 1 : fail(rc, "MPI_Test", err);
}

const struct ig_transport ingot_transport = {
	.magic = IG_TRANSPORT_MAGIC,
	.version = IG_TRANSPORT_VERSION,
	.struct_size = sizeof ingot_transport,
	.name = "mpi",
	.open = open_mpi,
	.close = close_mpi,
	.abort = abort_mpi,
	.send = begin_send,
	.probe = probe,
	.receive = begin_receive,
	.done = is_done,
};
