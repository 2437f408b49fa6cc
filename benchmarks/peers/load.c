/* Sends prepared Kafka requests over some connections, and measures what comes back: `load PORT CONNECTIONS SECONDS
 * RATE FILE`.
 *
 * FILE holds whole request frames; connection i sends frame i modulo their number, each time with a new correlation
 * ID. Without a rate (0), a connection sends its next request when the answer to the last one is there. With a rate,
 * the first connection sends this many requests a second, and latency counts from the time when a request was due.
 * Prints one JSON object: requests, bytes received, seconds, and percentiles of the latency in microseconds.
 * Ends with 1 and a line if an answer has another correlation ID or another length than the first one.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MAX_FRAMES 1024
#define MAX_LATENCIES 8000000
#define HEADER 8 /* size and correlation ID of an answer */
#define IDLE_SECONDS 20

struct connection {
  int socket;
  unsigned char *frame;
  size_t frame_bytes;
  uint32_t correlation;
  size_t got, answer_bytes;
  unsigned char header[HEADER];
  uint32_t first_answer_bytes;
  double began;
};

static float *latencies;
static size_t count;
static unsigned long long received;
static unsigned char scrap[1 << 20];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *why) {
  fprintf(stderr, "load: %s\n", why);
  exit(1);
}

static uint32_t number_at(const unsigned char *bytes) {
  return (uint32_t)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

static void send_request(struct connection *c, double due) {
  uint32_t correlation = htonl(++c->correlation);
  memcpy(c->frame + 8, &correlation, 4);
  c->began = due;
  c->got = c->answer_bytes = 0;
  for (size_t sent = 0; sent < c->frame_bytes;) {
    ssize_t n = write(c->socket, c->frame + sent, c->frame_bytes - sent);
    if (n <= 0) fail("the connection was closed, or it takes nothing");
    sent += n;
  }
}

/* Read once; return 1 if an answer is complete. */
static int receive(struct connection *c) {
  ssize_t n;
  if (c->got < HEADER) {
    /* Most answers are small: one read brings all of it. */
    size_t left = (c->first_answer_bytes ? c->first_answer_bytes : HEADER) - c->got;
    n = read(c->socket, scrap, left < sizeof scrap ? left : sizeof scrap);
    if (n <= 0) fail("the connection was closed");
    size_t part = c->got + n < HEADER ? (size_t)n : HEADER - c->got;
    memcpy(c->header + c->got, scrap, part);
  } else {
    size_t left = c->answer_bytes - c->got;
    n = read(c->socket, scrap, left < sizeof scrap ? left : sizeof scrap);
    if (n <= 0) fail("the connection was closed");
  }
  c->got += n;
  received += n;
  if (c->got < HEADER) return 0;
  if (!c->answer_bytes) {
    c->answer_bytes = 4 + (size_t)number_at(c->header);
    if (number_at(c->header + 4) != c->correlation) fail("an answer has another correlation ID");
    if (c->first_answer_bytes && c->answer_bytes != c->first_answer_bytes) fail("an answer has another length");
  }
  if (c->got < c->answer_bytes) return 0;
  c->first_answer_bytes = c->answer_bytes;
  if (count < MAX_LATENCIES) latencies[count] = (now() - c->began) * 1e6;
  count++;
  return 1;
}

static int connect_to(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  struct timeval limit = {.tv_sec = IDLE_SECONDS};
  int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(s, (struct sockaddr *)&address, sizeof address)) fail("cannot connect");
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return s;
}

static int by_size(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static double percentile(double share) {
  size_t kept = count < MAX_LATENCIES ? count : MAX_LATENCIES;
  return kept ? latencies[(size_t)((kept - 1) * share)] : 0;
}

int main(int argc, char **argv) {
  if (argc != 6) fail("usage: load PORT CONNECTIONS SECONDS RATE FILE");
  int port = atoi(argv[1]), connections = atoi(argv[2]), frames = 0;
  double seconds = atof(argv[3]), rate = atof(argv[4]);
  unsigned char *frame[MAX_FRAMES];
  size_t bytes[MAX_FRAMES];
  unsigned char size[4];
  FILE *file = fopen(argv[5], "rb");
  if (!file) fail("cannot read the file of requests");
  while (frames < MAX_FRAMES && fread(size, 1, 4, file) == 4) {
    bytes[frames] = 4 + number_at(size);
    frame[frames] = malloc(bytes[frames]);
    memcpy(frame[frames], size, 4);
    if (fread(frame[frames] + 4, 1, bytes[frames] - 4, file) != bytes[frames] - 4) fail("a request is cut off");
    frames++;
  }
  fclose(file);
  if (!frames) fail("no request");
  latencies = malloc(sizeof *latencies * MAX_LATENCIES);
  struct connection *all = calloc(connections, sizeof *all);
  int poll = epoll_create1(0);
  for (int i = 0; i < connections; i++) {
    struct connection *c = all + i;
    c->socket = connect_to(port);
    c->frame_bytes = bytes[i % frames];
    c->frame = malloc(c->frame_bytes);
    memcpy(c->frame, frame[i % frames], c->frame_bytes);
    /* Two requests before the clock starts: connections to brokers are made, and the first answers are slow. */
    for (int warm = 0; warm < 2; warm++) {
      send_request(c, now());
      while (!receive(c)) {}
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poll, EPOLL_CTL_ADD, c->socket, &event);
  }
  size_t warm = count;
  count = 0;
  received = 0;
  double began = now(), ends = began + seconds;
  if (rate > 0) {
    for (double due = began; due < ends; due += 1 / rate) {
      double wait = due - now();
      if (wait > 0) {
        struct timespec pause = {.tv_sec = (time_t)wait, .tv_nsec = (long)((wait - (time_t)wait) * 1e9)};
        nanosleep(&pause, NULL);
      }
      send_request(all, due);
      while (!receive(all)) {}
    }
  } else {
    struct epoll_event events[256];
    int busy = connections;
    for (int i = 0; i < connections; i++) send_request(all + i, now());
    while (busy) {
      int n = epoll_wait(poll, events, 256, IDLE_SECONDS * 1000);
      if (n <= 0) fail("no answer for too long");
      for (int i = 0; i < n; i++) {
        struct connection *c = events[i].data.ptr;
        if (!receive(c)) continue;
        double t = now();
        if (t < ends) send_request(c, t);
        else busy--;
      }
    }
  }
  double took = now() - began;
  qsort(latencies, count < MAX_LATENCIES ? count : MAX_LATENCIES, sizeof *latencies, by_size);
  printf("{\"requests\": %zu, \"warm\": %zu, \"bytes\": %llu, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
         count, warm, received, took, percentile(0.5), percentile(0.99));
  return 0;
}
