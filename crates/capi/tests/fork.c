/* What fork does to the library: the child is refused by every function, and the parent goes on. */

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <tidewire.h>
#include <unistd.h>

static int child(tw_handle s) {
    char buffer[8];
    tw_pollfd entry = {s, TW_POLLIN, 0};
    int refused = tw_socket() == TW_EFORKED && tw_setsockopt(s, "nonblocking", "on") == TW_EFORKED &&
                  tw_bind(s, "127.0.0.1:0") == TW_EFORKED && tw_listen(s, 1) == TW_EFORKED &&
                  tw_link(s, NULL, buffer, sizeof buffer) == TW_EFORKED && tw_accept(s) == TW_EFORKED &&
                  tw_connect(s, "") == TW_EFORKED && tw_open(s) == TW_EFORKED && tw_send(s, "x", 1) == TW_EFORKED &&
                  tw_recv(s, buffer, sizeof buffer) == TW_EFORKED && tw_shutdown(s, TW_SHUT_WR) == TW_EFORKED &&
                  tw_poll(&entry, 1, -1) == TW_EFORKED && tw_fd(s, TW_POLLIN) == TW_EFORKED &&
                  tw_cleanup(-1) == TW_EFORKED && tw_close(s) == TW_EFORKED;
    return refused && strstr(tw_last_error(), "forked") != NULL ? 0 : 1;
}

int main(void) {
    tw_handle listener = tw_socket();
    if (tw_bind(listener, "127.0.0.1:0") < 0 || tw_listen(listener, 1) < 0) return 1;
    char link[TW_LINK_SIZE];
    if (tw_link(listener, NULL, link, sizeof link) < 0) return 1;

    pid_t pid = fork();
    if (pid < 0) return 1;
    if (pid == 0) _exit(child(listener));
    int status = -1;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return 2;

    char byte = 0;
    tw_handle client = tw_socket();
    if (tw_connect(client, link) < 0 || tw_send(client, "x", 1) != 1) return 3;
    tw_handle server = tw_accept(listener);
    if (tw_recv(server, &byte, 1) != 1 || byte != 'x') return 4;
    /* Closes them all. */
    if (tw_cleanup(-1) < 0 || tw_send(client, "x", 1) != TW_EBADF) return 5;
    puts("child and parent are well");
    return 0;
}
