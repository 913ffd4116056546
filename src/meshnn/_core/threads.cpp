// Memory that later calls reuse, and one pool of threads per process.
//
// A caller publishes a job, works on it itself and waits for the workers that have joined. Each free thread takes the
// next task from an atomic counter. Idle workers poll for a while before they sleep, because steps of training follow
// each other faster than the system wakes a thread. After a fork the child starts a new pool.
#include "core.hpp"
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <malloc.h>
#include <windows.h>
#else
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#endif

namespace {
constexpr int SPINS = 6000;       // polls before a worker sleeps: about 100 microseconds
constexpr int PATIENCE = 2000;    // polls of a counter before a thread yields its processor
constexpr int MOST_WORKERS = 256;
constexpr size_t MOST_KEPT = size_t(1) << 26;  // larger buffers are returned to the system

#if defined(_WIN32)
SRWLOCK mutex = SRWLOCK_INIT;
CONDITION_VARIABLE work_there = CONDITION_VARIABLE_INIT;
void lock() { AcquireSRWLockExclusive(&mutex); }
void unlock() { ReleaseSRWLockExclusive(&mutex); }
void sleep_for_work() { SleepConditionVariableSRW(&work_there, &mutex, INFINITE, 0); }
void wake_all() { WakeAllConditionVariable(&work_there); }
void offer_processor() { SwitchToThread(); }
#else
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t work_there = PTHREAD_COND_INITIALIZER;
void lock() { pthread_mutex_lock(&mutex); }
void unlock() { pthread_mutex_unlock(&mutex); }
void sleep_for_work() { pthread_cond_wait(&work_there, &mutex); }
void wake_all() { pthread_cond_broadcast(&work_there); }
void offer_processor() { sched_yield(); }
#endif
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

struct Job {
    void (*task)(void*, int64_t);
    void* context;
    int64_t count, next, places, helpers;  // tasks, the next one, workers that may still join, active workers
    Job* chain;
};
Job* jobs = nullptr;          // guarded by the mutex, as are sleepers and workers
int sleepers = 0, workers = 0;
int64_t published = 0;        // number of jobs so far, which idle workers poll

void run_tasks(Job& job) {
    for (int64_t p; (p = __atomic_fetch_add(&job.next, 1, __ATOMIC_ACQ_REL)) < job.count;) job.task(job.context, p);
}
Job* joined_job() {
    for (Job* job = jobs; job; job = job->chain)
        if (job->places > 0 && __atomic_load_n(&job->next, __ATOMIC_ACQUIRE) < job->count) {
            --job->places;
            __atomic_fetch_add(&job->helpers, 1, __ATOMIC_ACQ_REL);
            return job;
        }
    return nullptr;
}
void serve() {
    for (;;) {
        int64_t seen = __atomic_load_n(&published, __ATOMIC_ACQUIRE);
        lock();
        Job* job = joined_job();
        unlock();
        if (job) {
            run_tasks(*job);
            __atomic_fetch_sub(&job->helpers, 1, __ATOMIC_RELEASE);  // the caller may now delete the job
            continue;
        }
        for (int k = 0; k < SPINS && __atomic_load_n(&published, __ATOMIC_ACQUIRE) == seen; ++k) relax();
        lock();
        while (__atomic_load_n(&published, __ATOMIC_ACQUIRE) == seen) {
            ++sleepers;
            sleep_for_work();
            --sleepers;
        }
        unlock();
    }
}
#if defined(_WIN32)
DWORD WINAPI begin(void*) { serve(); return 0; }
bool start_worker() {
    HANDLE thread = CreateThread(nullptr, 0, begin, nullptr, 0, nullptr);
    if (thread) CloseHandle(thread);
    return thread != nullptr;
}
#else
void* begin(void*) { serve(); return nullptr; }
bool registered = false;
void forget_pool() {  // the child of a fork has a single thread
    pthread_mutex_t fresh_mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t fresh_cond = PTHREAD_COND_INITIALIZER;
    mutex = fresh_mutex, work_there = fresh_cond, jobs = nullptr, sleepers = workers = 0;
}
bool start_worker() {
    if (!registered) registered = pthread_atfork(nullptr, nullptr, forget_pool) == 0;
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the threads of Python handle signals
    bool started = pthread_create(&thread, nullptr, begin, nullptr) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (started) pthread_detach(thread);
    return started;
}
#endif

// The first 64 bytes of a block; the memory after it is aligned.
struct Header { Header* next; size_t bytes; };
constexpr size_t HEAD = 64;
bool try_lock(int& flag) {
    for (int k = 0; k < 100000; ++k)
        if (!__atomic_exchange_n(&flag, 1, __ATOMIC_ACQUIRE)) return true;
    return false;  // locked by a thread that does not exist after a fork
}
}  // namespace

void parallel(int64_t count, int64_t threads, void (*task)(void*, int64_t), void* context) {
    if (threads > count) threads = count;
    if (threads <= 1) {
        for (int64_t p = 0; p < count; ++p) task(context, p);
        return;
    }
    Job job = {task, context, count, 0, threads - 1, 0, nullptr};
    lock();
    while (workers < threads - 1 && workers < MOST_WORKERS && start_worker()) ++workers;
    job.chain = jobs;
    jobs = &job;
    __atomic_fetch_add(&published, 1, __ATOMIC_RELEASE);
    if (sleepers) wake_all();
    unlock();
    run_tasks(job);
    lock();
    for (Job** place = &jobs; *place; place = &(*place)->chain)
        if (*place == &job) {
            *place = job.chain;
            break;
        }
    unlock();
    for (int k = 0; __atomic_load_n(&job.helpers, __ATOMIC_ACQUIRE); ++k)
        if (k > PATIENCE) offer_processor(); else relax();
}

void* allocate(size_t bytes) {
    void* memory = nullptr;
#if defined(_WIN32)
    memory = _aligned_malloc(bytes, 64);
#else
    if (posix_memalign(&memory, 64, bytes)) memory = nullptr;
#endif
    if (memory) memset(memory, 0, bytes);
    return memory;
}
void release(void* memory) {
#if defined(_WIN32)
    _aligned_free(memory);
#else
    free(memory);
#endif
}

struct Block : Header {};
void* borrow(Pool& pool, size_t bytes) {
    if (try_lock(pool.lock)) {
        Block** place = &pool.free;
        while (*place && (*place)->bytes < bytes) place = reinterpret_cast<Block**>(&(*place)->next);
        Block* found = *place;
        if (found) *place = static_cast<Block*>(found->next);
        __atomic_store_n(&pool.lock, 0, __ATOMIC_RELEASE);
        if (found) return reinterpret_cast<char*>(found) + HEAD;
    }
    char* memory = static_cast<char*>(allocate(bytes + HEAD));
    if (!memory) return nullptr;
    reinterpret_cast<Header*>(memory)->bytes = bytes;
    return memory + HEAD;
}
void give_back(Pool& pool, void* memory, bool keep_large) {
    Block* block = reinterpret_cast<Block*>(static_cast<char*>(memory) - HEAD);
    if ((block->bytes > MOST_KEPT && !keep_large) || !try_lock(pool.lock)) return release(block);
    block->next = pool.free;
    pool.free = block;
    __atomic_store_n(&pool.lock, 0, __ATOMIC_RELEASE);
}
void clear(Pool& pool) {
    for (Block* block = pool.free; block;) {
        Block* next = static_cast<Block*>(block->next);
        release(block);
        block = next;
    }
    pool.free = nullptr;
}
