/* A libnvidia-ml.so.1 that unmodified nvidia-ml-py accepts. FAKE_NVML names one host:
 *   two         two GPUs that tell everything
 *   silent      one GPU whose driver tells its name and UUID only
 *   mig         one GPU divided into two MIG devices, the third place empty
 *   hangs       two GPUs; sampling the first never returns
 *   start-hangs the first call never returns
 *   broken      the library does not fit the driver
 *   lost        two GPUs, the first fell off the bus
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, GPU_IS_LOST = 15, LIB_RM_VERSION_MISMATCH = 18 };

typedef struct { int index, part; } *Handle;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Rates;

static int host(const char *name) { return !strcmp(getenv("FAKE_NVML"), name); }
static void hang(void) { for (;;) pause(); }
static int silent(void) { return host("silent") ? NOT_SUPPORTED : OK; }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (host("start-hangs")) hang();
    return host("broken") ? LIB_RM_VERSION_MISMATCH : OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "999.1"); return silent(); }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = host("silent") || host("mig") ? 1 : 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle *handle) {
    if (host("lost") && index == 0) return GPU_IS_LOST;
    *handle = malloc(sizeof **handle);
    (*handle)->index = index, (*handle)->part = -1;
    return OK;
}
int nvmlDeviceGetName(Handle h, char *text, unsigned size) { snprintf(text, size, "Fake %d", h->index); return OK; }
int nvmlDeviceGetUUID(Handle h, char *text, unsigned size) {
    if (h->part < 0) snprintf(text, size, "GPU-%d", h->index);
    else snprintf(text, size, "MIG-%d-%d", h->index, h->part);
    return OK;
}
int nvmlDeviceGetMemoryInfo(Handle h, Memory *memory) {
    if (host("hangs") && h->index == 0 && getenv("FAKE_NVML_ARMED")) hang();
    memory->total = 80ull << 30, memory->used = (h->index + 1) * 1000ull, memory->free = 0;
    return silent();
}
int nvmlDeviceGetUtilizationRates(Handle h, Rates *rates) { rates->gpu = 40 + h->index; return silent(); }
int nvmlDeviceGetTemperature(Handle h, int sensor, unsigned *value) { (void)sensor; *value = 50 + h->index; return silent(); }
int nvmlDeviceGetTemperatureV(Handle h, int *value) { value[2] = 50 + h->index; return silent(); }
int nvmlDeviceGetPowerUsage(Handle h, unsigned *value) { *value = 300500 + h->index; return silent(); }
int nvmlDeviceGetTotalEccErrors(Handle h, int kind, int counter, unsigned long long *value) {
    (void)kind, (void)counter, *value = h->index;
    return silent();
}
int nvmlDeviceGetMigMode(Handle h, unsigned *now, unsigned *pending) {
    (void)h, *now = *pending = host("mig");
    return host("mig") ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxMigDeviceCount(Handle h, unsigned *count) { (void)h, *count = 3; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Handle h, unsigned index, Handle *part) {
    if (index == 1) return NOT_FOUND;
    *part = malloc(sizeof **part);
    (*part)->index = h->index, (*part)->part = index;
    return OK;
}
