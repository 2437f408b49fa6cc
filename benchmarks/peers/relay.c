/* The floor of any proxy: passes bytes on, and understands nothing: `relay PORT TARGET_PORT`. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_SOCKETS 65536

static int peer[MAX_SOCKETS];
static char bytes[1 << 18];

static struct sockaddr_in local(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

static void join(int poll, int socket, int other) {
  int one = 1;
  struct epoll_event event = {.events = EPOLLIN, .data.fd = socket};
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  epoll_ctl(poll, EPOLL_CTL_ADD, socket, &event);
  peer[socket] = other;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  struct sockaddr_in here = local(atoi(argv[1])), there = local(atoi(argv[2]));
  int one = 1, poll = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 1024)) return 1;
  join(poll, listener, -1);
  for (struct epoll_event events[256];;) {
    int n = epoll_wait(poll, events, 256, -1);
    for (int i = 0; i < n; i++) {
      int from = events[i].data.fd;
      if (from == listener) {
        int client = accept(listener, NULL, NULL), broker = socket(AF_INET, SOCK_STREAM, 0);
        if (client < 0 || client >= MAX_SOCKETS || broker >= MAX_SOCKETS) return 1;
        if (connect(broker, (struct sockaddr *)&there, sizeof there)) return 1;
        join(poll, client, broker);
        join(poll, broker, client);
        continue;
      }
      ssize_t got = read(from, bytes, sizeof bytes), sent = 0, put = 1;
      /* Sockets block: a benchmark has no slow reader. */
      while (sent < got && put > 0) sent += put = write(peer[from], bytes + sent, got - sent);
      if (got > 0 && put > 0) continue;
      /* The other one ends by itself: its read returns the end. Its number for this one must not outlive this one. */
      if (peer[from] >= 0) {
        shutdown(peer[from], SHUT_RDWR);
        peer[peer[from]] = -1;
      }
      close(from);
    }
  }
}
