/*
 * The C interface, used from C: every function, its refusals, threads and forks.
 *
 *     cc -std=c11 -Wall -Wextra -Werror -pthread -Iinclude tests/capi.c -Ltarget/release -lzrfs -o capi
 *     LD_LIBRARY_PATH=target/release ./capi EMPTY_FOLDER LIBRARY
 *
 * LIBRARY is a copy of libzrfs.so, to load and unload. Ends with status 0 and the line "ok", or says what is wrong.
 * tests/peers/test_capi.py builds and runs it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zrfs.h>

#define FORKS 60
#define CHILD_SECONDS 30

#define CHECK(condition)                                                                                        \
    do {                                                                                                        \
        if (!(condition)) {                                                                                     \
            const char *why = zr_last_error();                                                                  \
            fprintf(stderr, "%s:%d: not so: %s; last error: %s\n", __FILE__, __LINE__, #condition,              \
                    why ? why : "none");                                                                        \
            _exit(1);                                                                                           \
        }                                                                                                       \
    } while (0)

/* The call returns `code`, and the text holds `word`. */
#define REFUSED(call, code, word)                                                                               \
    do {                                                                                                        \
        CHECK((call) == (code));                                                                                \
        CHECK(strstr(zr_last_error(), word));                                                                   \
    } while (0)

static char folder[4096];

/* The path of something in the folder; good for one use at a time. */
static const char *in_folder(const char *name)
{
    static _Thread_local char path[8192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static Zrecord *open_store(const char *name)
{
    const char *path = in_folder(name);
    int32_t code = 99;
    Zrecord *zr = zr_open(path, strlen(path), &code);
    CHECK(zr && code == ZR_OK);
    return zr;
}

static int32_t why_not(const char *name)
{
    const char *path = in_folder(name);
    int32_t code = 99;
    CHECK(!zr_open(path, strlen(path), &code));
    return code;
}

static int exists(const char *name)
{
    struct stat st;
    return stat(in_folder(name), &st) == 0;
}

/* What byte k of record i is. Every other record compresses. */
static uint8_t byte_of(uint64_t i, size_t k)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + (i % 2 ? k * 0xd1342543de82ef95u : k / 64);
    return (uint8_t)(x >> 56);
}

static void fill(uint8_t *record, uint64_t i, size_t len)
{
    for (size_t k = 0; k < len; k++) record[k] = byte_of(i, k);
}

static int is_record(const uint8_t *record, uint64_t i, size_t len)
{
    for (size_t k = 0; k < len; k++)
        if (record[k] != byte_of(i, k)) return 0;
    return 1;
}

enum { N = 400, LEN = 700 };

/* Appends records first to first + N - 1. */
static void append_some(Zrecord *zr, uint64_t first)
{
    uint8_t *src = malloc((size_t)N * LEN);
    CHECK(src);
    for (size_t i = 0; i < N; i++) fill(src + i * LEN, first + i, LEN);
    CHECK(zr_append(zr, src, (size_t)N * LEN, N, LEN, LEN, ZR_CODEC_FLATE) == (int64_t)first);
    free(src);
}

/* Gathers N records in three ways, and looks at each byte. */
static void gather_some(Zrecord *zr, unsigned seed)
{
    static _Thread_local uint64_t indices[N], offsets[N];
    static _Thread_local uint32_t lens[N];
    static _Thread_local uint8_t dst[N * (LEN + 3)];
    for (size_t i = 0; i < N; i++) {
        indices[i] = (uint64_t)rand_r(&seed) % N;
        offsets[i] = (N - 1 - i) * (LEN + 1);
    }
    memset(dst, 0, sizeof dst);
    CHECK(zr_gather(zr, indices, N, dst, sizeof dst, LEN + 3) == ZR_OK);
    for (size_t i = 0; i < N; i++) CHECK(is_record(dst + i * (LEN + 3), indices[i], LEN));
    memset(dst, 0, sizeof dst);
    CHECK(zr_gather_var(zr, indices, N, dst, sizeof dst, offsets) == ZR_OK);
    for (size_t i = 0; i < N; i++) CHECK(is_record(dst + offsets[i], indices[i], LEN));
    CHECK(zr_lengths(zr, indices, N, lens) == ZR_OK);
    for (size_t i = 0; i < N; i++) CHECK(lens[i] == LEN);
}

static void a_place_without_a_store(void)
{
    Zrecord *zr = open_store("deep/er/none.zr");
    uint64_t zero = 0, live = 1, chunk = 1;
    uint32_t len = 0, records = 1;
    uint8_t byte = 'x';
    CHECK(zr_len(zr) == 0 && zr_sync(zr) == ZR_OK && zr_compact(zr) == ZR_OK);
    CHECK(zr_gather(zr, NULL, 0, NULL, 0, 0) == ZR_OK && zr_gather_var(zr, NULL, 0, NULL, 0, NULL) == ZR_OK);
    CHECK(zr_lengths(zr, NULL, 0, NULL) == ZR_OK && zr_delete(zr, NULL, 0) == ZR_OK);
    CHECK(zr_append(zr, NULL, 0, 0, 0, 0, 0) == 0 && zr_append_var(zr, NULL, 0, 0, NULL, NULL, 0) == 0);
    REFUSED(zr_gather(zr, &zero, 1, &byte, 1, 1), ZR_EINDEX, "no store");
    REFUSED(zr_gather_var(zr, &zero, 1, &byte, 1, &zero), ZR_EINDEX, "no store");
    REFUSED(zr_lengths(zr, &zero, 1, &len), ZR_EINDEX, "no store");
    REFUSED(zr_delete(zr, &zero, 1), ZR_EINDEX, "no store");
    REFUSED(zr_append(zr, &byte, 1, 2, 1, 1, 0), ZR_EGEOMETRY, "offset 1");
    zr_stats(zr, &records, &live, &chunk);
    CHECK(records == 0 && live == 0 && chunk == 0);
    CHECK(!exists("deep"));
    CHECK(zr_append(zr, &byte, 1, 1, 1, 1, ZR_CODEC_RAW) == 0);
    CHECK(exists("deep/er/none.zr/meta.zr"));
    zr_close(zr);
    /* Closing has synced. */
    zr = open_store("deep/er/none.zr");
    CHECK(zr_len(zr) == 1);
    zr_close(zr);

    /* A path is that of the time when it was opened. */
    CHECK(chdir(folder) == 0);
    zr = zr_open("relative.zr", 11, NULL);
    CHECK(zr && chdir("/") == 0);
    CHECK(zr_append(zr, &byte, 1, 1, 1, 1, ZR_CODEC_RAW) == 0);
    zr_close(zr);
    CHECK(exists("relative.zr/meta.zr"));
}

static void fixed_records(void)
{
    Zrecord *zr = open_store("fixed.zr");
    append_some(zr, 0);
    CHECK(zr_sync(zr) == ZR_OK && zr_len(zr) == N);
    gather_some(zr, 1);
    zr_close(zr);

    zr = open_store("fixed.zr");
    CHECK(zr_len(zr) == N);
    gather_some(zr, 2);
    append_some(zr, N);
    uint64_t indices[2] = {N + 7, 2 * N};
    static uint8_t dst[2 * LEN];
    REFUSED(zr_gather(zr, indices, 2, dst, sizeof dst, LEN), ZR_EINDEX, "no record 800");
    CHECK(zr_gather(zr, indices, 1, dst, sizeof dst, LEN) == ZR_OK && is_record(dst, N + 7, LEN));
    indices[1] = UINT64_MAX;
    REFUSED(zr_gather(zr, indices, 2, dst, sizeof dst, LEN), ZR_EINDEX, "no record 18446744073709551615");
    REFUSED(zr_lengths(zr, indices, 2, (uint32_t *)(void *)dst), ZR_EINDEX, "no record");
    REFUSED(zr_delete(zr, indices, 2), ZR_EINDEX, "no record");
    indices[1] = 5;
    REFUSED(zr_gather(zr, indices, 2, dst, sizeof dst, LEN - 1), ZR_EGEOMETRY, "has 700 bytes");
    REFUSED(zr_gather(zr, indices, 2, dst, sizeof dst - 1, LEN), ZR_EGEOMETRY, "too few");
    REFUSED(zr_gather(zr, indices, 2, dst, sizeof dst, SIZE_MAX), ZR_EGEOMETRY, "too few");
    CHECK(zr_gather(zr, indices, 2, dst, sizeof dst, LEN) == ZR_OK && is_record(dst + LEN, 5, LEN));
    zr_close(zr);
}

static void ragged_and_strided_records(void)
{
    Zrecord *zr = open_store("ragged.zr");
    const uint8_t *src = (const uint8_t *)"abcdefgh";
    uint64_t offsets[4] = {5, 0, 2, 2}, places[4] = {8, 0, 5, 3}, indices[4] = {0, 1, 2, 3};
    uint32_t lens[4] = {3, 2, 1, 1}, out[4];
    uint8_t dst[12];
    CHECK(zr_append_var(zr, src, 8, 4, offsets, lens, ZR_CODEC_FLATE) == 0);
    CHECK(zr_lengths(zr, indices, 4, out) == ZR_OK && memcmp(out, lens, sizeof lens) == 0);
    memset(dst, '.', sizeof dst);
    CHECK(zr_gather_var(zr, indices, 4, dst, sizeof dst, places) == ZR_OK && memcmp(dst, "ab.c.c..fgh.", 12) == 0);
    places[0] = 4;
    REFUSED(zr_gather_var(zr, indices, 4, dst, sizeof dst, places), ZR_EGEOMETRY, "overlaps");
    places[0] = UINT64_MAX;
    REFUSED(zr_gather_var(zr, indices, 4, dst, sizeof dst, places), ZR_EGEOMETRY, "too few");
    lens[3] = 7;
    REFUSED(zr_append_var(zr, src, 8, 4, offsets, lens, 0), ZR_EGEOMETRY, "offset 2");
    lens[3] = 0;
    REFUSED(zr_append_var(zr, src, 8, 4, offsets, lens, 0), ZR_ESIZE, "0 bytes");
    lens[3] = zr_max_record_len() + 1;
    REFUSED(zr_append_var(zr, src, 8, 4, offsets, lens, 0), ZR_ESIZE, "1048577 bytes");

    /* Every third byte, two bytes each; then the same byte three times; then of a codec that there is not. */
    CHECK(zr_append(zr, src, 8, 3, 3, 2, ZR_CODEC_FLATE) == 4);
    CHECK(zr_append(zr, src + 3, 1, 3, 0, 1, ZR_CODEC_RAW) == 7);
    CHECK(zr_append(zr, src, 8, 4, 2, 2, 77) == 10);
    uint64_t all[10];
    for (uint64_t i = 0; i < 10; i++) all[i] = 4 + i;
    uint8_t pairs[20];
    memset(pairs, '.', sizeof pairs);
    CHECK(zr_gather(zr, all, 10, pairs, sizeof pairs, 2) == ZR_OK);
    CHECK(memcmp(pairs, "abdeghd.d.d.abcdefgh", 20) == 0);
    REFUSED(zr_append(zr, src, 8, 3, 4, 2, 0), ZR_EGEOMETRY, "offset 8");
    REFUSED(zr_append(zr, src, 8, 2, SIZE_MAX, 2, 0), ZR_EGEOMETRY, "2 bytes");
    REFUSED(zr_append(zr, src, 8, SIZE_MAX, 2, 2, 0), ZR_EGEOMETRY, "2 bytes");
    REFUSED(zr_append(zr, src, 8, 1, 2, 0, 0), ZR_ESIZE, "0 bytes");
    REFUSED(zr_append(zr, src, 8, 1, 2, SIZE_MAX, 0), ZR_ESIZE, "does not fit");
    REFUSED(zr_append(zr, src, 8, (1u << 24) + 1, 0, 1, 0), ZR_EFULL, "16777216");
    CHECK(zr_len(zr) == 14);
    zr_close(zr);
}

static void delete_and_compact(void)
{
    Zrecord *zr = open_store("deleted.zr");
    append_some(zr, 0);
    uint64_t doomed[N / 2 + 1];
    for (uint64_t i = 0; i < N / 2; i++) doomed[i] = 2 * i;
    doomed[N / 2] = 0;
    uint32_t records;
    uint64_t live, chunk, live_now, chunk_now;
    CHECK(zr_delete(zr, doomed, N / 2 + 1) == ZR_OK && zr_len(zr) == N / 2);
    zr_stats(zr, &records, &live, &chunk);
    CHECK(records == N / 2 && live < chunk);
    CHECK(zr_compact(zr) == ZR_OK);
    zr_stats(zr, NULL, &live_now, &chunk_now);
    zr_stats(zr, NULL, NULL, NULL);
    CHECK(live_now == live && chunk_now == live);
    static uint8_t dst[LEN];
    int seen[N] = {0};
    for (uint64_t i = 0; i < N / 2; i++) {
        CHECK(zr_gather(zr, &i, 1, dst, LEN, LEN) == ZR_OK);
        for (uint64_t old = 0; old < N; old++) seen[old] += is_record(dst, old, LEN);
    }
    for (uint64_t old = 0; old < N; old++) CHECK(seen[old] == (int)(old % 2));

    Zrecord *other = open_store("deleted.zr");
    char self[32];
    snprintf(self, sizeof self, "process %d", (int)getpid());
    REFUSED(zr_delete(zr, doomed, 1), ZR_EIO, self);
    REFUSED(zr_compact(zr), ZR_EIO, self);
    zr_close(other);
    zr_close(zr);
}

static void what_is_no_store(void)
{
    FILE *file = fopen(in_folder("file"), "w");
    CHECK(file && fputs("no store", file) >= 0 && fclose(file) == 0);
    CHECK(why_not("file") == ZR_EFORMAT);
    CHECK(mkdir(in_folder("other"), 0777) == 0);
    file = fopen(in_folder("other/meta.zr"), "w");
    CHECK(file && fputs("this is something else", file) >= 0 && fclose(file) == 0);
    CHECK(why_not("other") == ZR_EFORMAT);
    CHECK(strstr(zr_last_error(), "magic"));
    CHECK(!zr_open(in_folder("other"), strlen(in_folder("other")), NULL));
    CHECK(!zr_open(NULL, 4, NULL) && !zr_open("", 0, NULL));
    /* Only the bytes that are given count. */
    CHECK(mkdir(in_folder("oth"), 0777) == 0);
    Zrecord *zr = zr_open(in_folder("other"), strlen(in_folder("oth")), NULL);
    CHECK(zr);
    zr_close(zr);
}

static void pointers_that_are_none(void)
{
    Zrecord *zr = open_store("fixed.zr");
    uint64_t one[1] = {0};
    uint8_t dst[LEN];
    uint32_t len;
    const uint64_t *odd = (const uint64_t *)(const void *)((const char *)one + 1);
    REFUSED(zr_gather(zr, NULL, 1, dst, LEN, LEN), ZR_EGEOMETRY, "idxs is NULL");
    REFUSED(zr_gather(zr, one, 1, NULL, LEN, LEN), ZR_EGEOMETRY, "dst is NULL");
    REFUSED(zr_gather(zr, odd, 1, dst, LEN, LEN), ZR_EGEOMETRY, "aligned");
    REFUSED(zr_gather(zr, one, SIZE_MAX / 8, dst, LEN, LEN), ZR_EGEOMETRY, "no memory");
    REFUSED(zr_gather_var(zr, one, 1, dst, LEN, NULL), ZR_EGEOMETRY, "offsets is NULL");
    REFUSED(zr_lengths(zr, one, 1, NULL), ZR_EGEOMETRY, "out is NULL");
    REFUSED(zr_append(zr, NULL, 8, 1, 8, 8, 0), ZR_EGEOMETRY, "src is NULL");
    REFUSED(zr_append_var(zr, dst, 8, 1, NULL, &len, 0), ZR_EGEOMETRY, "offsets is NULL");
    REFUSED(zr_append_var(zr, dst, 8, 1, one, NULL, 0), ZR_EGEOMETRY, "lens is NULL");
    REFUSED(zr_delete(zr, NULL, 1), ZR_EGEOMETRY, "idxs is NULL");
    zr_close(zr);

    uint64_t live = 1;
    REFUSED(zr_sync(NULL), ZR_EIO, "zr is NULL");
    CHECK(zr_len(NULL) == 0 && zr_compact(NULL) == ZR_EIO && zr_delete(NULL, one, 1) == ZR_EIO);
    CHECK(zr_gather(NULL, one, 1, dst, LEN, LEN) == ZR_EIO && zr_lengths(NULL, one, 1, &len) == ZR_EIO);
    CHECK(zr_gather_var(NULL, one, 1, dst, LEN, one) == ZR_EIO && zr_append(NULL, dst, 1, 1, 1, 1, 0) == ZR_EIO);
    CHECK(zr_append_var(NULL, dst, 8, 1, one, &len, 0) == ZR_EIO);
    zr_stats(NULL, NULL, &live, NULL);
    CHECK(live == 0);
    zr_close(NULL);
    cdeinit(NULL);
    cnext(NULL, one, 1);
}

static void *first_words(void *unused)
{
    CHECK(!zr_last_error());
    CHECK(zr_sync(NULL) == ZR_EIO && zr_last_error());
    return unused;
}

static void last_errors_are_a_threads_own(void)
{
    const char *before = zr_last_error();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, first_words, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(zr_last_error() == before);
}

static void index_streams(void)
{
    static const uint64_t expected[12] = {5, 4, 4, 6, 1, 7, 1, 2, 1, 8, 6, 1};
    uint64_t out[12];
    Sampler *s = cinit(10, 4, ZR_MODE_IID, 42);
    CHECK(s);
    for (int step = 0; step < 3; step++) cnext(s, out + 4 * step, 4);
    CHECK(memcmp(out, expected, sizeof out) == 0);
    cdeinit(s);

    s = cinit(3, 4, ZR_MODE_SEQUENTIAL, 0);
    memset(out, 0xff, sizeof out);
    cnext(s, out, 2);
    CHECK(out[0] == 0 && out[1] == 1 && out[2] == UINT64_MAX);
    cnext(s, out, 12);
    CHECK(out[0] == 1 && out[1] == 2 && out[2] == 0 && out[3] == 1 && out[4] == UINT64_MAX);
    cdeinit(s);

    s = cinit(5, 5, ZR_MODE_SHUFFLE, 1);
    cnext(s, out, 5);
    int seen = 0;
    for (int i = 0; i < 5; i++) seen |= 1 << out[i];
    CHECK(seen == 31);
    cdeinit(s);
    CHECK(!cinit(0, 4, 0, 0) && !cinit(4, 0, 0, 0) && !cinit(4, 4, 3, 0));
}

/* Threads and forks */

static atomic_int stop;

static void *gather_on(void *zr)
{
    for (unsigned seed = 3; !atomic_load(&stop); seed++) gather_some(zr, seed);
    return NULL;
}

static void *append_on(void *zr)
{
    for (uint8_t byte = 0; !atomic_load(&stop); byte++) CHECK(zr_append(zr, &byte, 1, 1, 1, 1, ZR_CODEC_FLATE) > 0);
    return NULL;
}

static void *open_on(void *unused)
{
    while (!atomic_load(&stop)) {
        Zrecord *zr = open_store("forked.zr");
        gather_some(zr, 4);
        zr_close(zr);
    }
    return unused;
}

static void in_child(Zrecord *zr, int round)
{
    /* A child that hangs is killed. */
    alarm(CHILD_SECONDS);
    uint8_t byte = 0;
    uint64_t zero = 0;
    uint64_t live = 0;
    gather_some(zr, (unsigned)round);
    CHECK(zr_len(zr) >= N);
    zr_stats(zr, NULL, &live, NULL);
    CHECK(live > 0);
    REFUSED(zr_append(zr, &byte, 1, 1, 1, 1, 0), ZR_EIO, "forked");
    REFUSED(zr_delete(zr, &zero, 1), ZR_EIO, "forked");
    REFUSED(zr_compact(zr), ZR_EIO, "forked");
    REFUSED(zr_sync(zr), ZR_EIO, "forked");
    if (round % 2) zr_close(zr);
    zr = open_store("forked.zr");
    gather_some(zr, 5);
    zr_close(zr);
    if (round % 3 == 0) {
        zr = open_store("of_a_child.zr");
        append_some(zr, zr_len(zr));
        zr_close(zr);
    }
    _exit(0);
}

static void forks_among_threads(void)
{
    Zrecord *zr = open_store("forked.zr");
    append_some(zr, 0);
    CHECK(zr_sync(zr) == ZR_OK);
    pthread_t threads[4];
    CHECK(pthread_create(&threads[0], NULL, gather_on, zr) == 0);
    CHECK(pthread_create(&threads[1], NULL, gather_on, zr) == 0);
    CHECK(pthread_create(&threads[2], NULL, append_on, zr) == 0);
    CHECK(pthread_create(&threads[3], NULL, open_on, NULL) == 0);
    for (int round = 0; round < FORKS; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) in_child(zr, round);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(!WIFSIGNALED(status));
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(zr_sync(zr) == ZR_OK);
    gather_some(zr, 6);
    zr_close(zr);
    zr = open_store("of_a_child.zr");
    CHECK(zr_len(zr) == N * (FORKS / 3));
    zr_close(zr);
}

/* A library that was loaded, used and unloaded has left a fork handler and threads. */
static void unloading(const char *library)
{
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(loaded);
    Zrecord *(*open)(const char *, size_t, int32_t *);
    int32_t (*gather)(Zrecord *, const uint64_t *, size_t, uint8_t *, size_t, size_t);
    void (*close)(Zrecord *);
    *(void **)&open = dlsym(loaded, "zr_open");
    *(void **)&gather = dlsym(loaded, "zr_gather");
    *(void **)&close = dlsym(loaded, "zr_close");
    CHECK(open && gather && close && (void *)open != (void *)zr_open);
    static uint64_t indices[N];
    static uint8_t dst[N * LEN];
    Zrecord *zr = open(in_folder("fixed.zr"), strlen(in_folder("fixed.zr")), NULL);
    CHECK(zr && gather(zr, indices, N, dst, sizeof dst, LEN) == ZR_OK);
    close(zr);
    CHECK(dlclose(loaded) == 0);
    pid_t child = fork();
    if (child == 0) _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3 && strlen(argv[1]) < sizeof folder);
    strcpy(folder, argv[1]);
    CHECK(!zr_last_error());
    CHECK(zr_max_record_len() == 1048576);
    a_place_without_a_store();
    fixed_records();
    ragged_and_strided_records();
    delete_and_compact();
    what_is_no_store();
    pointers_that_are_none();
    last_errors_are_a_threads_own();
    index_streams();
    forks_among_threads();
    unloading(argv[2]);
    puts("ok");
    return 0;
}
