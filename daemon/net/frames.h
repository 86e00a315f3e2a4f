/* frames.h: the frames of a WebSocket, RFC 6455, at the server's end.  Pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IG_WS_TEXT = 1, IG_WS_BINARY = 2, IG_WS_CLOSE = 8, IG_WS_PING = 9, IG_WS_PONG = 10 };

#define IG_WS_MAX_CONTROL 125 /* bytes of the payload of a control frame */
#define IG_WS_MAX_HEAD 10     /* bytes of the head of a frame of a server */

struct ig_frames { /* zero-initialized */
	unsigned char head[14];
	unsigned n_head;
	bool fin, binary, in_message; /* of the message: a fragment came, the last one did not */
	int opcode;		      /* of the frame whose payload comes; 0: a continuation */
	bool in_frame;
	uint64_t left; /* of its payload */
	unsigned char key[4];
	unsigned key_at;
	char control[IG_WS_MAX_CONTROL];
	size_t n_control;
};

enum ig_frames_rc {
	IG_FRAMES_MORE,	   /* all of the input is used */
	IG_FRAMES_BEGIN,   /* of a frame of a message: left is its size */
	IG_FRAMES_DATA,	   /* a piece of its payload, unmasked, within the input */
	IG_FRAMES_END,	   /* the message is complete */
	IG_FRAMES_CONTROL, /* a whole control frame: opcode, control, n_control */
	IG_FRAMES_BAD,	   /* a violation of the protocol */
};

/* Consume input: advances *in and *n.  Must not be called again after IG_FRAMES_BAD. */
enum ig_frames_rc ig_frames_feed(struct ig_frames *f, char **in, size_t *n, char **data,
				 size_t *len);
/* The head of a frame of a server; returns its length. */
size_t ig_frame_head(unsigned char out[IG_WS_MAX_HEAD], int opcode, size_t len);
/* Whether a peer may send this code in a close frame. */
bool ig_ws_close_code(unsigned code);
