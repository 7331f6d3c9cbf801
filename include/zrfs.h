/*
 * zrfs.h - the C interface of zrfs: record stores (Zrecord, the format of loaderx 0.5.0) and index streams.
 *
 * C99 and later, C++. Link with -lzrfs; where the library is in no folder that the system searches, with -L and
 * -Wl,-rpath, too. The functions zr_open to zr_stats and cinit to cdeinit have the names, signatures
 * and codes of loaderx 0.5.0's libraries: libzrfs.so may stand for its libzrecord.so and for its libsampler.so.
 *
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *     #include <zrfs.h>
 *
 *     int main(void)
 *     {
 *         int32_t code;
 *         Zrecord *zr = zr_open("train.zr", 8, &code);
 *         if (!zr) {
 *             fprintf(stderr, "%s\n", zr_last_error());
 *             return 1;
 *         }
 *
 *         static uint8_t samples[1000 * 3072];                        // 1000 records of 3072 bytes
 *         int64_t first = zr_append(zr, samples, sizeof samples, 1000, 3072, 3072, ZR_CODEC_FLATE);
 *         if (first < 0 || zr_sync(zr) != ZR_OK) {
 *             fprintf(stderr, "%s\n", zr_last_error());
 *             return 1;
 *         }
 *
 *         Sampler *sampler = cinit(zr_len(zr), 256, ZR_MODE_IID, 42);
 *         uint64_t indices[256];
 *         static uint8_t batch[256 * 3072];
 *         for (int step = 0; step < 10; step++) {
 *             cnext(sampler, indices, 256);
 *             if (zr_gather(zr, indices, 256, batch, sizeof batch, 3072) != ZR_OK) {
 *                 fprintf(stderr, "%s\n", zr_last_error());
 *                 return 1;
 *             }
 *         }
 *         cdeinit(sampler);
 *         zr_close(zr);
 *         return 0;
 *     }
 *
 * Units
 *     Lengths, strides and offsets are bytes; counts (`n`, `indices_len`) are elements. Numbers are the machine's own.
 *
 * Pointers
 *     Where the count that belongs to a pointer is 0, the pointer is not looked at and may be NULL. Elsewhere it has to
 *     point to as many elements as the count says, aligned to their type, and stay valid for the call; nothing is kept of
 *     it afterwards. What a function writes to may overlap nothing else that is given to it, and no other thread may use it
 *     meanwhile. NULL with a count, a pointer that is not aligned, and a size that no memory has (more than PTRDIFF_MAX bytes)
 *     give ZR_EGEOMETRY. Other pointers that are not valid are as undefined as anywhere in C.
 *
 * Errors
 *     A function that fails returns a negative code, NULL, 0 or nothing, as its comment says; zr_last_error() has the text.
 *     A NULL handle gives ZR_EIO, 0 or nothing. A fault of zrfs itself never ends the program: it gives ZR_EIO.
 *
 * Threads
 *     One Zrecord may be used by any number of threads at once, for any calls but zr_close(). Calls that read wait for
 *     nobody; those that change the store wait for each other. One Sampler is for one thread at a time.
 *
 * fork()
 *     A child may go on reading through the handles that it has inherited, whatever its parent's other threads were doing
 *     at the time, but for zr_delete() and zr_compact(): then reading gives ZR_EIO, and the child opens the store anew. It
 *     sees what the parent had appended by then. It can't change anything through them, as its parent
 *     holds the store's locks: ZR_EIO. It may close them, and open its own. A Sampler's copies go on independently.
 *
 * Other processes
 *     Two never append at the same time, and no record is lost: see zr_append(). Locks are on the open meta.zr, so they end
 *     with their process. loaderx's own library takes no locks; it must not change a store that is open here for writing.
 *
 * The library can't be unloaded: dlclose() keeps it in memory.
 */
#ifndef ZRFS_H
#define ZRFS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return. Negative is failure. */
enum {
    ZR_OK = 0,
    ZR_EMEMORY = -1,   /* a buffer does not fit in memory */
    ZR_EIO = -2,       /* the system refused, or others are in the way; also what has no code of its own */
    ZR_EINDEX = -3,    /* an index at or past the number of records */
    ZR_ESIZE = -4,     /* a record that is too long, or empty */
    ZR_EFULL = -5,     /* the store holds no more records or chunks */
    ZR_EGEOMETRY = -6, /* pointers, lengths, strides or offsets that do not fit each other or the records */
    ZR_EDAMAGED = -7,  /* a damaged record, or a missing or cut file that it lies in */
    ZR_EFORMAT = -8    /* no store, a version that this library does not read, or a damaged header */
};

/* How records are stored: zr_append(), zr_append_var(). */
enum {
    ZR_CODEC_RAW = 0,
    ZR_CODEC_FLATE = 1 /* Deflate, record by record, where that saves at least 2%; raw elsewhere */
};

/* Orders of indices: cinit(). */
enum {
    ZR_MODE_SEQUENTIAL = 0, /* 0, 1, 2, ... and from the start again */
    ZR_MODE_IID = 1,        /* uniform with replacement; loaderx 0.5.0's numbers for each seed */
    ZR_MODE_SHUFFLE = 2     /* each index once a pass, in a new order each; not in loaderx */
};

/* A place where a store is, or may be. */
typedef struct Zrecord Zrecord;

/* An endless stream of indices. */
typedef struct Sampler Sampler;

/*
 * The text of the calling thread's last failure: what failed, where, and what to do about it. One line of UTF-8, ended by a
 * zero byte; NULL where the thread has met no failure. Not in loaderx.
 *
 * Valid until the thread's next failing call of this library, or its end. A call that succeeds leaves it as it is, so look at
 * it only after a failure.
 */
const char *zr_last_error(void);

/*
 * Opens the store at a path.
 *
 * path_ptr, path_len   the path, which needs no zero byte at its end
 * code                 NULL, or where ZR_OK or the code of the failure goes
 *
 * Creates nothing. Where no store is (no folder, or one without any part of a store) it succeeds with the handle of an empty
 * one; each call looks again whether a store is there by now, and the first append creates one.
 *
 * It is opened for reading and writing. Where that is refused (a read-only medium, missing permission, a file system without
 * locks, a cut meta.zr) it is opened for reading, and each call that would change it gives the reason. Waits up to 5 s for
 * another process that is changing the store.
 *
 * Returns NULL where it fails: ZR_EFORMAT for what is no store, a file, say, and for a damaged header; ZR_EIO where the
 * system refuses, or the store is still being changed; ZR_EGEOMETRY for an empty path.
 */
Zrecord *zr_open(const char *path_ptr, size_t path_len, int32_t *code);

/*
 * Syncs what was appended, and closes. No other call on the handle may be under way, and none may follow. NULL is let pass.
 *
 * That the sync failed is only told by zr_last_error(): call zr_sync() first. In a forked child it lets go of what the child
 * has inherited, and syncs nothing.
 */
void zr_close(Zrecord *zr);

/*
 * The number of records: indices are 0 to zr_len() - 1. Sees what others have appended and synced. 0 where there is no
 * store yet, and where it fails. Takes nanoseconds.
 */
uint32_t zr_len(Zrecord *zr);

/*
 * Makes what was appended through this handle durable, and visible to other processes and handles. Takes the time that the
 * disk takes; ZR_OK where there is no store yet, or it is open for reading only.
 *
 * ZR_EIO where the system refuses. The handle takes no more changes then, as nobody knows what has reached the disk: open the
 * store again and look. ZR_EIO also where another program has changed the store against the rules: what was appended since
 * the last sync is lost then.
 */
int32_t zr_sync(Zrecord *zr);

/* The longest record of a version 1 store, in bytes: 1048576. Those of version 2, which zrfs makes, take up to 1 GiB. */
uint32_t zr_max_record_len(void);

/*
 * The decoded lengths of records, from the table alone.
 *
 * idxs, n   the records
 * out       n lengths; unspecified after a failure
 *
 * ZR_EINDEX; ZR_EDAMAGED for an entry that contradicts the format.
 */
int32_t zr_lengths(Zrecord *zr, const uint64_t *idxs, size_t n, uint32_t *out);

/*
 * Decodes record idxs[i] to dst + i * stride, on all cores where that is worth it.
 *
 * idxs, n        the records, which may repeat and come in any order
 * dst, dst_len   where they go; what lies between a record's end and the next one's place is left as it is. Unspecified
 *                after a failure
 * stride         bytes from one place to the next
 *
 * ZR_EINDEX; ZR_EGEOMETRY where a record is longer than stride, or does not lie in dst_len bytes; ZR_EDAMAGED for a record
 * that does not decode, an entry that contradicts the format, a missing or cut file; ZR_EMEMORY; ZR_EIO.
 */
int32_t zr_gather(Zrecord *zr, const uint64_t *idxs, size_t n, uint8_t *dst, size_t dst_len, size_t stride);

/*
 * Decodes record idxs[i], of whatever length, to dst + offsets[i]; zr_lengths() tells how much room each takes.
 *
 * offsets   n byte offsets into dst
 *
 * As zr_gather(), and ZR_EGEOMETRY where two records would overlap.
 */
int32_t zr_gather_var(Zrecord *zr, const uint64_t *idxs, size_t n, uint8_t *dst, size_t dst_len,
                      const uint64_t *offsets);

/*
 * Appends records of one length.
 *
 * src, src_len   where they are
 * n              how many; 0 returns the store's length and does nothing
 * stride         bytes from one record to the next
 * item_len       bytes of each
 * codec          ZR_CODEC_RAW or ZR_CODEC_FLATE; any other number is raw
 *
 * Returns the index of the first one, or a code. All of them are appended, or none. Creates the store, with the folders that
 * lead to it, where there is none: version 1, with records of 1 byte to zr_max_record_len() bytes.
 *
 * The records can be read through this handle when it returns. They are durable, and others see them, after zr_sync() or
 * zr_close(). Until then the handle holds the right to append: another process, or another handle of this one, waits up
 * to 5 s for it and then gets ZR_EIO with the process in the text. So sync after a group of appends.
 *
 * ZR_ESIZE for records of no bytes or too many; ZR_EGEOMETRY where one does not lie in src_len bytes; ZR_EFULL past 2^24
 * records; ZR_EIO where the system refuses, others are in the way, the store could only be opened for reading, or a forked
 * child has inherited the handle; ZR_EDAMAGED where the header would have an append overwrite records; ZR_EMEMORY.
 */
int64_t zr_append(Zrecord *zr, const uint8_t *src, size_t src_len, size_t n, size_t stride, size_t item_len,
                  uint8_t codec);

/*
 * Appends records of any lengths: record i is the lens[i] bytes at src + offsets[i]. They may overlap. As zr_append().
 */
int64_t zr_append_var(Zrecord *zr, const uint8_t *src, size_t src_len, size_t n, const uint64_t *offsets,
                      const uint32_t *lens, uint8_t codec);

/*
 * Deletes records: all of idxs, in any order, each once however often it is named, or none. It is on disk when it returns.
 *
 * From the highest down, the last record moves into each hole, so indices are 0 to zr_len() - 1 afterwards, and an index may
 * name another record than before. Other threads may read meanwhile; each call sees one state. The bytes stay until
 * zr_compact().
 *
 * ZR_EINDEX; ZR_EIO at once where another process, or another handle of this one, has the store open (the text names the
 * process), the system refuses, the store could only be opened for reading, or a forked child has inherited the handle.
 */
int32_t zr_delete(Zrecord *zr, const uint64_t *idxs, size_t n);

/*
 * Gives the disk of deleted records back. Indices stay. Ended at any moment, it loses nothing, and the next one goes on.
 * Other threads may read meanwhile. ZR_OK where there is no store.
 *
 * Errors as for zr_delete(); ZR_EDAMAGED where the store has to be repaired first (`zrfs repair`).
 */
int32_t zr_compact(Zrecord *zr);

/*
 * Figures of the store; each pointer may be NULL. Reads the whole table: milliseconds for a million records.
 *
 * records       live records
 * live_bytes    bytes that they take, as stored
 * chunk_bytes   bytes to the end of what was ever appended; what is beyond live_bytes is what a compaction can free at most
 *
 * All are 0 where there is no store yet, and where it fails.
 */
void zr_stats(Zrecord *zr, uint32_t *records, uint64_t *live_bytes, uint64_t *chunk_bytes);

/*
 * Starts a stream of indices.
 *
 * length       indices are 0 to length - 1
 * batch_size   indices that each cnext() goes on by; the stream does not depend on it
 * mode         ZR_MODE_SEQUENTIAL, ZR_MODE_IID or ZR_MODE_SHUFFLE
 * seed         what random modes depend on
 *
 * Returns NULL for a length or batch size of 0, a batch size over 2^32, an unknown mode, and where there is no memory.
 */
Sampler *cinit(uint64_t length, uint64_t batch_size, uint8_t mode, uint64_t seed);

/*
 * Writes the next batch.
 *
 * indices_ptr, indices_len   where it goes. At most indices_len indices are written, and never more than batch_size; the
 *                            stream goes on by batch_size in any case, which is drawn whole: about 1 ns an index
 *
 * Where it fails (a NULL pointer, say), nothing is written, the stream stays where it is, and zr_last_error() tells.
 */
void cnext(Sampler *s, uint64_t *indices_ptr, size_t indices_len);

/* Ends a stream. NULL is let pass. */
void cdeinit(Sampler *s);

#ifdef __cplusplus
}
#endif

#endif
