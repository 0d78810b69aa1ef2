/* Sends a file over Tidewire, and has the receiver confirm its hash. Compiles as C11 and as C++17.
 *
 *   file receive FILE       prints its link, writes what it receives to FILE, answers with its hash and ends
 *   file send FILE LINK     sends FILE, and compares the hash of the answer with its own
 *
 * The hash is FNV-1a with 64 bits: it finds mistakes, not attackers. Those have no secret and get no answer. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidewire.h>

static unsigned char buffer[65536];

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, tw_last_error());
    exit(1);
}

static FILE *open_file(const char *name, const char *mode) {
    FILE *file = fopen(name, mode);
    if (file == NULL) {
        perror(name);
        exit(1);
    }
    return file;
}

static uint64_t hash_more(uint64_t hash, const unsigned char *data, size_t size) {
    for (size_t i = 0; i < size; i++) hash = (hash ^ data[i]) * UINT64_C(1099511628211);
    return hash;
}

static const uint64_t EMPTY = UINT64_C(14695981039346656037);

static void receive_file(const char *name) {
    char link[TW_LINK_SIZE], answer[32];
    FILE *file = open_file(name, "wb");
    tw_handle listener = tw_socket();
    if (tw_bind(listener, "127.0.0.1:0") < 0 || tw_listen(listener, 1) < 0) die("tw_listen");
    if (tw_link(listener, NULL, link, sizeof link) < 0) die("tw_link");
    printf("%s\n", link);
    fflush(stdout);
    tw_handle s = tw_accept(listener);
    if (s < 0) die("tw_accept");

    uint64_t hash = EMPTY;
    int64_t n;
    while ((n = tw_recv(s, buffer, sizeof buffer)) > 0) {
        if (fwrite(buffer, 1, (size_t)n, file) != (size_t)n) {
            perror(name);
            exit(1);
        }
        hash = hash_more(hash, buffer, (size_t)n);
    }
    if (n < 0) die("tw_recv");
    if (fclose(file) != 0) {
        perror(name);
        exit(1);
    }
    int length = snprintf(answer, sizeof answer, "%016" PRIx64, hash);
    if (tw_send(s, answer, (size_t)length) != length) die("tw_send");
    /* Waits until the sender has the answer. */
    if (tw_close(s) < 0 || tw_close(listener) < 0 || tw_cleanup(-1) < 0) die("tw_close");
}

static void send_file(const char *name, const char *link) {
    char answer[32], expected[32];
    FILE *file = open_file(name, "rb");
    tw_handle s = tw_socket();
    if (tw_connect(s, link) < 0) die("tw_connect");

    uint64_t hash = EMPTY;
    size_t size;
    while ((size = fread(buffer, 1, sizeof buffer, file)) > 0) {
        hash = hash_more(hash, buffer, size);
        if (tw_send(s, buffer, size) != (int64_t)size) die("tw_send");
    }
    if (ferror(file) != 0) {
        perror(name);
        exit(1);
    }
    fclose(file);
    if (tw_shutdown(s, TW_SHUT_WR) < 0) die("tw_shutdown");

    size_t length = 0;
    int64_t n;
    while (length + 1 < sizeof answer && (n = tw_recv(s, answer + length, sizeof answer - 1 - length)) != 0) {
        if (n < 0) die("tw_recv");
        length += (size_t)n;
    }
    answer[length] = '\0';
    snprintf(expected, sizeof expected, "%016" PRIx64, hash);
    if (strcmp(answer, expected) != 0) {
        fprintf(stderr, "the receiver has the hash %s, the file %s\n", answer, expected);
        exit(1);
    }
    printf("%s arrived: %s\n", name, answer);
    if (tw_close(s) < 0 || tw_cleanup(-1) < 0) die("tw_close");
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "receive") == 0) {
        receive_file(argv[2]);
    } else if (argc == 4 && strcmp(argv[1], "send") == 0) {
        send_file(argv[2], argv[3]);
    } else {
        fprintf(stderr, "usage: %s receive FILE\n       %s send FILE LINK\n", argv[0], argv[0]);
        return 2;
    }
    return 0;
}
