/* An echo server and its client over Tidewire. Compiles as C11 and as C++17.
 *
 *   echo server [poll]            prints its link, echoes one stream and ends
 *   echo client LINK MB [poll]    sends MB million bytes, and checks that they come back
 *
 * Without `poll` calls block: the client sends in a thread of its own. With it one thread does everything: the
 * server waits with tw_poll, the client with the system's poll on the descriptors of tw_fd. */

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tidewire.h>

enum { CHUNK = 65536, PERIOD = 65521 }; /* a prime, so that no shift by a chunk goes unnoticed */

static unsigned char pattern[PERIOD + CHUNK];

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, tw_last_error());
    exit(1);
}

static void fill_pattern(void) {
    uint32_t state = 1;
    for (size_t i = 0; i < PERIOD; i++) {
        state = state * 1664525u + 1013904223u;
        pattern[i] = (unsigned char)(state >> 24);
    }
    for (size_t i = PERIOD; i < sizeof pattern; i++) pattern[i] = pattern[i - PERIOD];
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void set_nonblocking(tw_handle s) {
    if (tw_setsockopt(s, "nonblocking", "on") < 0) die("tw_setsockopt");
}

/* The server. */

static void echo_blocking(tw_handle s) {
    static unsigned char buffer[CHUNK];
    int64_t n;
    while ((n = tw_recv(s, buffer, sizeof buffer)) > 0) {
        if (tw_send(s, buffer, (size_t)n) != n) die("tw_send");
    }
    if (n < 0) die("tw_recv");
}

/* Waits until the socket is ready for `event`. */
static void wait_for(tw_handle s, int16_t event) {
    tw_pollfd entry;
    entry.handle = s;
    entry.events = event;
    entry.revents = 0;
    if (tw_poll(&entry, 1, -1) != 1 || (entry.revents & event) == 0) die("tw_poll");
}

static void echo_polling(tw_handle s) {
    static unsigned char buffer[CHUNK];
    for (;;) {
        wait_for(s, TW_POLLIN);
        int64_t n = tw_recv(s, buffer, sizeof buffer);
        if (n == 0) return;
        if (n == TW_EAGAIN) continue;
        if (n < 0) die("tw_recv");
        for (int64_t sent = 0; sent < n;) {
            int64_t taken = tw_send(s, buffer + sent, (size_t)(n - sent));
            if (taken == TW_EAGAIN) {
                wait_for(s, TW_POLLOUT);
            } else if (taken < 0) {
                die("tw_send");
            } else {
                sent += taken;
            }
        }
    }
}

static void serve(int polls) {
    char link[TW_LINK_SIZE];
    tw_handle listener = tw_socket();
    if (tw_bind(listener, "127.0.0.1:0") < 0 || tw_listen(listener, 16) < 0) die("tw_listen");
    if (tw_link(listener, NULL, link, sizeof link) < 0) die("tw_link");
    printf("%s\n", link);
    fflush(stdout);
    if (polls) {
        set_nonblocking(listener);
        wait_for(listener, TW_POLLIN);
    }
    tw_handle s = tw_accept(listener);
    if (s < 0) die("tw_accept");
    if (polls) {
        echo_polling(s);
    } else {
        echo_blocking(s);
    }
    if (tw_shutdown(s, TW_SHUT_WR) < 0) die("tw_shutdown");
    /* A blocking close waits until the client has everything; so does tw_cleanup. */
    if (tw_close(s) < 0 || tw_close(listener) < 0 || tw_cleanup(-1) < 0) die("tw_close");
}

/* The client. */

struct job {
    tw_handle socket;
    uint64_t bytes;
};

static size_t chunk_at(uint64_t offset, uint64_t bytes) {
    return bytes - offset < CHUNK ? (size_t)(bytes - offset) : (size_t)CHUNK;
}

static void check(const unsigned char *data, int64_t n, uint64_t offset) {
    if (memcmp(data, pattern + offset % PERIOD, (size_t)n) != 0) {
        fprintf(stderr, "bytes from %" PRIu64 " on came back changed\n", offset);
        exit(1);
    }
}

static void *send_all(void *argument) {
    struct job *job = (struct job *)argument;
    for (uint64_t sent = 0; sent < job->bytes;) {
        size_t wanted = chunk_at(sent, job->bytes);
        int64_t n = tw_send(job->socket, pattern + sent % PERIOD, wanted);
        if (n < 0) die("tw_send");
        sent += (uint64_t)n;
    }
    if (tw_shutdown(job->socket, TW_SHUT_WR) < 0) die("tw_shutdown");
    return NULL;
}

static uint64_t client_blocking(tw_handle s, uint64_t bytes) {
    static unsigned char buffer[CHUNK];
    struct job job = {s, bytes};
    pthread_t sender;
    if (pthread_create(&sender, NULL, send_all, &job) != 0) exit(1);
    uint64_t received = 0;
    int64_t n;
    while ((n = tw_recv(s, buffer, sizeof buffer)) > 0) {
        check(buffer, n, received);
        received += (uint64_t)n;
    }
    if (n < 0) die("tw_recv");
    pthread_join(sender, NULL);
    return received;
}

static uint64_t client_polling(tw_handle s, uint64_t bytes) {
    static unsigned char buffer[CHUNK];
    struct pollfd fds[2];
    fds[0].fd = tw_fd(s, TW_POLLIN);
    fds[1].fd = tw_fd(s, TW_POLLOUT);
    if (fds[0].fd < 0 || fds[1].fd < 0) die("tw_fd");
    /* A descriptor of tw_fd is readable when its event has come, TW_POLLOUT too. */
    fds[0].events = fds[1].events = POLLIN;
    uint64_t sent = 0, received = 0;
    int ended = 0;
    for (;;) {
        if (poll(fds, ended ? 1 : 2, -1) < 0) exit(1);
        if (!ended && (fds[1].revents & POLLIN) != 0) {
            int64_t n = tw_send(s, pattern + sent % PERIOD, chunk_at(sent, bytes));
            if (n < 0 && n != TW_EAGAIN) die("tw_send");
            if (n > 0) sent += (uint64_t)n;
            if (sent == bytes) {
                if (tw_shutdown(s, TW_SHUT_WR) < 0) die("tw_shutdown");
                ended = 1;
            }
        }
        if ((fds[0].revents & POLLIN) != 0) {
            int64_t n = tw_recv(s, buffer, sizeof buffer);
            if (n == 0) return received;
            if (n < 0 && n != TW_EAGAIN) die("tw_recv");
            if (n > 0) {
                check(buffer, n, received);
                received += (uint64_t)n;
            }
        }
    }
}

static void run_client(const char *link, uint64_t bytes, int polls) {
    tw_handle s = tw_socket();
    if (polls) set_nonblocking(s);
    int connected = tw_connect(s, link);
    if (connected == TW_EINPROGRESS) {
        wait_for(s, TW_POLLOUT);
        connected = (int)tw_send(s, "", 0); /* says whether the attempt has succeeded */
    }
    if (connected < 0) die("tw_connect");
    double start = now();
    uint64_t received = polls ? client_polling(s, bytes) : client_blocking(s, bytes);
    double seconds = now() - start;
    if (received != bytes) {
        fprintf(stderr, "%" PRIu64 " of %" PRIu64 " bytes came back\n", received, bytes);
        exit(1);
    }
    printf("%" PRIu64 " bytes came back, %.0f Mbit/s\n", bytes, (double)bytes * 8e-6 / seconds);
    if (tw_close(s) < 0 || tw_cleanup(-1) < 0) die("tw_close");
}

int main(int argc, char **argv) {
    int polls = argc > 2 && strcmp(argv[argc - 1], "poll") == 0;
    int words = argc - polls;
    fill_pattern();
    if (words == 2 && strcmp(argv[1], "server") == 0) {
        serve(polls);
    } else if (words == 4 && strcmp(argv[1], "client") == 0) {
        run_client(argv[2], strtoull(argv[3], NULL, 10) * 1000000, polls);
    } else {
        fprintf(stderr, "usage: %s server [poll]\n       %s client LINK MB [poll]\n", argv[0], argv[0]);
        return 2;
    }
    return 0;
}
