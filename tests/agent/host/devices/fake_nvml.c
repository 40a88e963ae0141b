/* A libnvidia-ml.so.1 that unmodified nvidia-ml-py accepts. FAKE_NVML names one host:
 *   two         two GPUs that tell everything
 *   alike       two GPUs of one name
 *   small       two GPUs of one name with 12 GiB
 *   silent      one GPU whose driver tells its name and UUID only, and permits no look for memory
 *   unified     one GPU without memory of its own, whose driver supports no look for it
 *   no-memory   the same, whose driver tells zero
 *   mig         one GPU divided into two MIG devices, the third place empty
 *   mig-empty   one GPU that is to be divided, of which no part was made
 *   hangs       two GPUs; sampling the first never returns
 *   start-hangs the first call never returns
 *   broken      the library does not fit the driver
 *   lost        two GPUs, the first fell off the bus
 *   all-lost    two GPUs, and both did
 *   none        a driver, and no GPU
 *   deaf        two GPUs, the first of which tells no events
 *
 * FAKE_NVML_STATE names a file with lines "WORD GPU NUMBER", read anew at each call; a test replaces it at any
 * time. `used` bytes, `ecc` errors, `pending`, `failed` (row remapping), `pages` (retired, pending), `action`
 * (what the driver wants done), `hang` (no look returns while it is 1), `slow` (milliseconds that one takes),
 * `error` (what a look for memory answers, and whoever asks which GPU that is, or waits for its events).
 * `pid` is a process on that GPU: each such line is one, and holds NUMBER MiB for its PART, which is the process id.
 * A line "xid GPU NUMBER PART" is an event: each line of that kind is told once, in order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMED_OUT = 10, GPU_IS_LOST = 15, LIB_RM_VERSION_MISMATCH = 18 };
enum { XID = 8, RECOVERY_ACTION = 230, NO_PART = -1 };

typedef struct { int index, part; } *Handle;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { Handle device; unsigned long long type, data; unsigned part, compute; } Event;
typedef struct {
    unsigned field, scope;
    long long when, latency;
    unsigned type;
    int answer;
    union { unsigned small; unsigned long long large; } value;
} Field;

static int host(const char *name) { return !strcmp(getenv("FAKE_NVML"), name); }
static void hang(void) { for (;;) pause(); }
static int silent(void) { return host("silent") ? NOT_SUPPORTED : OK; }

/* The n-th line of this word about this GPU (any for -1); how many there were before it otherwise. */
static int line(const char *word, int gpu, int n, long long numbers[3]) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char found[16];
    int seen = 0, hit = 0;
    numbers[2] = NO_PART;
    while (file && !hit && fscanf(file, "%15s %lld %lld", found, &numbers[0], &numbers[1]) == 3) {
        int c = fgetc(file);
        long long part = NO_PART;
        if (c == ' ' && fscanf(file, "%lld", &part) != 1) abort();
        if (strcmp(found, word) || (gpu >= 0 && numbers[0] != gpu) || seen++ < n) continue;
        numbers[2] = part, hit = 1;
    }
    if (file) fclose(file);
    return hit;
}
static long long told(const char *word, Handle h, long long otherwise) {
    long long numbers[3];
    return line(word, h->index, 0, numbers) ? numbers[1] : otherwise;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (host("start-hangs")) hang();
    return host("broken") ? LIB_RM_VERSION_MISMATCH : OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "999.1"); return silent(); }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12080; return silent(); }
static int unified(void) { return host("unified") || host("no-memory"); }
static int divided(void) { return host("mig") || host("mig-empty"); }
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = host("none") ? 0 : host("silent") || unified() || divided() ? 1 : 2;
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle *handle) {
    if ((host("lost") && index == 0) || host("all-lost")) return GPU_IS_LOST;
    *handle = malloc(sizeof **handle);
    (*handle)->index = index, (*handle)->part = -1;
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Handle *handle) {
    int index;
    if (sscanf(uuid, "GPU-%d", &index) != 1) return NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
int nvmlDeviceGetName(Handle h, char *text, unsigned size) {
    if (host("alike") || host("small")) snprintf(text, size, "Fake");
    else if (h->part < 0) snprintf(text, size, "Fake %d", h->index);
    else snprintf(text, size, "Fake %d MIG %dg.10gb", h->index, h->part + 1);
    return OK;
}
int nvmlDeviceGetUUID(Handle h, char *text, unsigned size) {
    if (h->part < 0) snprintf(text, size, "GPU-%d", h->index);
    else snprintf(text, size, "MIG-%d-%d", h->index, h->part);
    return told("error", h, OK);
}
int nvmlDeviceGetMemoryInfo(Handle h, Memory *memory) {
    if (host("hangs") && h->index == 0 && getenv("FAKE_NVML_ARMED")) hang();
    while (told("hang", h, 0)) usleep(1000);
    usleep(1000 * told("slow", h, 0));
    memory->total = (h->part >= 0 ? 10ull : host("small") ? 12ull : 80ull) << 30, memory->free = 0;
    memory->used = told("used", h, (h->index + 1) * 1000ull);
    if (host("no-memory")) memory->total = memory->used = 0;
    return host("unified") ? NOT_SUPPORTED : told("error", h, host("silent") ? NO_PERMISSION : OK);
}
/* Of a part, the driver tells memory and processes; all else of the whole GPU only. */
static int of_whole(Handle h) { return h->part < 0 ? silent() : NOT_SUPPORTED; }
int nvmlDeviceGetUtilizationRates(Handle h, Rates *rates) { rates->gpu = 40 + h->index; return of_whole(h); }
int nvmlDeviceGetTemperature(Handle h, int sensor, unsigned *value) { (void)sensor; *value = 50 + h->index; return of_whole(h); }
int nvmlDeviceGetTemperatureV(Handle h, int *value) { value[2] = 50 + h->index; return of_whole(h); }
int nvmlDeviceGetPowerUsage(Handle h, unsigned *value) { *value = 300500 + h->index; return of_whole(h); }
int nvmlDeviceGetTotalEccErrors(Handle h, int kind, int counter, unsigned long long *value) {
    (void)kind, (void)counter, *value = told("ecc", h, h->index);
    return of_whole(h);
}
int nvmlDeviceGetRemappedRows(Handle h, unsigned *mended, unsigned *broken, unsigned *pending, unsigned *failed) {
    *mended = *broken = 0, *pending = told("pending", h, 0), *failed = told("failed", h, 0);
    return told("pages", h, -1) < 0 ? of_whole(h) : NOT_SUPPORTED;
}
int nvmlDeviceGetRetiredPagesPendingStatus(Handle h, unsigned *pending) {
    *pending = told("pages", h, 0);
    return of_whole(h);
}
int nvmlDeviceGetFieldValues(Handle h, int count, Field *fields) {
    for (int n = 0; n < count; n++) {
        fields[n].answer = fields[n].field == RECOVERY_ACTION ? OK : NOT_SUPPORTED;
        fields[n].value.small = told("action", h, 0);
    }
    return of_whole(h);
}
int nvmlDeviceGetGpuInstanceId(Handle h, unsigned *part) { *part = h->part; return h->part < 0 ? NOT_SUPPORTED : OK; }

typedef struct { unsigned pid; unsigned long long used; unsigned part, compute; } Process;

int nvmlDeviceGetComputeRunningProcesses_v3(Handle h, unsigned *count, Process *processes) {
    long long numbers[3];
    unsigned n = 0;
    for (; line("pid", h->index, n, numbers); n++) {
        if (n >= *count) continue;
        processes[n].pid = numbers[2], processes[n].part = processes[n].compute = NO_PART;
        processes[n].used = numbers[1] < 0 ? ~0ull : numbers[1] << 20;
    }
    int fits = n <= *count;
    *count = n;
    return silent() ? silent() : fits ? OK : INSUFFICIENT_SIZE;
}

/* A set holds which GPUs it is registered for, and how many events it has told. */
typedef struct { unsigned gpus; int told; } *Set;

int nvmlEventSetCreate(Set *set) { *set = calloc(1, sizeof **set); return silent(); }
int nvmlDeviceRegisterEvents(Handle h, unsigned long long types, Set set) {
    if (h->part >= 0 || types != XID || (host("deaf") && h->index == 0)) return NOT_SUPPORTED;
    set->gpus |= 1u << h->index;
    return OK;
}
static int gone(Set set) {
    long long numbers[3];
    for (int n = 0; line("error", -1, n, numbers); n++) if (set->gpus >> numbers[0] & 1) return numbers[1];
    return OK;
}
int nvmlEventSetWait_v2(Set set, Event *event, unsigned milliseconds) {
    long long numbers[3];
    for (unsigned waited = 0; waited <= milliseconds; waited++, usleep(1000)) {
        if (!line("xid", -1, set->told, numbers)) {
            int why = gone(set);
            if (why) return why;
            continue;
        }
        set->told++;
        if (!(set->gpus >> numbers[0] & 1)) continue;
        memset(event, 0, sizeof *event);
        nvmlDeviceGetHandleByIndex_v2(numbers[0], &event->device);
        event->type = XID, event->data = numbers[1], event->part = event->compute = numbers[2];
        return OK;
    }
    return TIMED_OUT;
}
int nvmlDeviceGetMigMode(Handle h, unsigned *now, unsigned *pending) {
    (void)h, *now = *pending = divided();
    return divided() ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxMigDeviceCount(Handle h, unsigned *count) { (void)h, *count = 3; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Handle h, unsigned index, Handle *part) {
    if (index == 1 || host("mig-empty")) return NOT_FOUND;
    *part = malloc(sizeof **part);
    (*part)->index = h->index, (*part)->part = index;
    return OK;
}
