/* The calls about a GPU that fake_nvml.c exports: who it is, what it reads, its links, processes, events and GPM. */

/* ---- who a GPU is ------------------------------------------------------------------------------- */

static int board_of(int place) { return now_control.other[place] ? now_control.other[place] : place; }
static void uuid_of(int place, char *out) { sprintf(out, "GPU-c01d97a7-0000-4000-8000-%012x", board_of(place) + 1); }
static void bus_of(int gpu, char *out) { sprintf(out, "%08X:%02X:00.0", 0, 0x1b + gpu * 0x10); }

API int nvmlDeviceGetHandleByIndex_v2(uint32_t index, gpu_t **out) {
    NODE();
    int place = place_of(index);
    if (place < 0) return INVALID;
    WHO(&gpus[place]);
    *out = &gpus[place];
    return OK;
}
API int nvmlDeviceGetHandleByUUID(const char *uuid, gpu_t **out) {
    char name[64];
    NODE();
    for (int i = 0; i < now_control.count; i++) {
        uuid_of(i, name);
        if (!now_control.gone[i] && !strcmp(name, uuid)) return nvmlDeviceGetHandleByIndex_v2(index_of(i), out);
    }
    return NOT_FOUND;
}
API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, gpu_t **out) {
    char name[32];
    NODE();
    for (int i = 0; i < now_control.count; i++) {
        bus_of(i, name);
        if (!now_control.gone[i] && !strcasecmp(name, bus)) return nvmlDeviceGetHandleByIndex_v2(index_of(i), out);
    }
    return NOT_FOUND;
}
API int nvmlDeviceGetIndex(gpu_t *gpu, uint32_t *out) { WHO(gpu); *out = index_of(gpu->index); return OK; }
API int nvmlDeviceGetMinorNumber(gpu_t *gpu, uint32_t *out) { WHO(gpu); *out = gpu->index; return OK; }
API int nvmlDeviceGetNumaNodeId(gpu_t *gpu, int *out) { WHO(gpu); *out = gpu->index / 4; return OK; }
API int nvmlDeviceGetUUID(gpu_t *gpu, char *out, uint32_t size) {
    char name[64];
    WHO(gpu);
    uuid_of(gpu->index, name);
    if (gpu->instance) {
        memcpy(name, "MIG", 3);
        name[16] = (char)('0' + gpu->instance); /* MIG-c01d97a7-0001-... */
    }
    return text(out, size, name);
}
API int nvmlDeviceGetSerial(gpu_t *gpu, char *out, uint32_t size) {
    char name[32];
    WHO(gpu);
    sprintf(name, "16503230000%02d", board_of(gpu->index));
    return text(out, size, name);
}
API int nvmlDeviceGetName(gpu_t *gpu, char *out, uint32_t size) { WHO(gpu); return text(out, size, gpu->instance ? "NVIDIA H100 80GB HBM3 MIG 1g.10gb" : "NVIDIA H100 80GB HBM3"); }
API int nvmlDeviceGetVbiosVersion(gpu_t *gpu, char *out, uint32_t size) { WHO(gpu); return text(out, size, "96.00.99.00.01"); }
API int nvmlDeviceGetBoardPartNumber(gpu_t *gpu, char *out, uint32_t size) { WHO(gpu); return text(out, size, "692-2G520-0200-000"); }
API int nvmlDeviceGetArchitecture(gpu_t *gpu, uint32_t *out) { WHO(gpu); *out = 9; return OK; }
API int nvmlDeviceGetCudaComputeCapability(gpu_t *gpu, int *major, int *minor) { WHO(gpu); *major = 9; *minor = 0; return OK; }
API int nvmlDeviceGetPciInfo_v3(gpu_t *gpu, void *out) {
    struct { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char bus_id[32]; } *info = out;
    WHO(gpu);
    memset(info, 0, sizeof *info);
    info->bus = 0x1b + gpu->index * 0x10;
    info->id = 0x233010de;
    bus_of(gpu->index, info->bus_id);
    memcpy(info->legacy, info->bus_id + 4, 12);
    return OK;
}

/* ---- readings ------------------------------------------------------------------------------------ */

API int nvmlDeviceGetFieldValues(gpu_t *gpu, int count, field_t *fields) {
    struct timespec t;
    ON(gpu);
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    for (int i = 0; i < count; i++) {
        fields[i].timestamp = t.tv_sec * 1000000ll + t.tv_nsec / 1000;
        fields[i].latency = 0;
        read_field(gpu->index, &fields[i]);
    }
    return OK;
}
API int nvmlDeviceGetUtilizationRates(gpu_t *gpu, uint32_t *out) {
    ON(gpu);
    if (now_control.mig[gpu->index]) return UNSUPPORTED;
    out[0] = (uint32_t)(100 * load_of(gpu->index));
    out[1] = (uint32_t)(60 * load_of(gpu->index));
    return OK;
}
API int nvmlDeviceGetEncoderUtilization(gpu_t *gpu, uint32_t *out, uint32_t *period) { ON(gpu); *out = 3; *period = 167000; return OK; }
API int nvmlDeviceGetDecoderUtilization(gpu_t *gpu, uint32_t *out, uint32_t *period) { ON(gpu); *out = 5; *period = 167000; return OK; }
API int nvmlDeviceGetMemoryInfo(gpu_t *gpu, uint64_t *out) {
    ON(gpu);
    out[0] = memory_total;
    out[2] = memory_used(gpu->index) + memory_reserved;
    out[1] = memory_total - out[2];
    return OK;
}
API int nvmlDeviceGetMemoryInfo_v2(gpu_t *gpu, uint64_t *out) {
    if ((uint32_t)out[0] != 0x02000028) return 25;
    ON(gpu);
    out[1] = memory_total;
    out[2] = memory_reserved;
    out[4] = memory_used(gpu->index);
    out[3] = memory_total - memory_reserved - out[4];
    return OK;
}
API int nvmlDeviceGetBAR1MemoryInfo(gpu_t *gpu, uint64_t *out) { ON(gpu); out[0] = 1ull << 37; out[2] = 1ull << 21; out[1] = out[0] - out[2]; return OK; }
API int nvmlDeviceGetTemperature(gpu_t *gpu, uint32_t sensor, uint32_t *out) { (void)sensor; ON(gpu); *out = celsius(gpu->index); return OK; }
API int nvmlDeviceGetTemperatureV(gpu_t *gpu, int32_t *out) {
    if (out[0] != 0x100000C) return 25;
    ON(gpu);
    out[2] = celsius(gpu->index);
    return OK;
}
API int nvmlDeviceGetMarginTemperature(gpu_t *gpu, int32_t *out) { ON(gpu); out[1] = 87 - (int)celsius(gpu->index); return OK; }
API int nvmlDeviceGetClockInfo(gpu_t *gpu, uint32_t domain, uint32_t *out) {
    ON(gpu);
    if (domain > 3) return INVALID;
    *out = domain == 2 ? 2619 : domain == 3 ? megahertz(gpu->index) - 200 : megahertz(gpu->index);
    return OK;
}
API int nvmlDeviceGetMaxClockInfo(gpu_t *gpu, uint32_t domain, uint32_t *out) { ON(gpu); *out = domain == 2 ? 2619 : 1980; return OK; }
API int nvmlDeviceGetCurrentClocksEventReasons(gpu_t *gpu, uint64_t *out) {
    ON(gpu);
    *out = load_of(gpu->index) > 0.8 ? 0x4 : load_of(gpu->index) < 0.1 ? 0x1 : 0;
    return OK;
}
API int nvmlDeviceGetCurrentClocksThrottleReasons(gpu_t *gpu, uint64_t *out) { return nvmlDeviceGetCurrentClocksEventReasons(gpu, out); }
API int nvmlDeviceGetPowerUsage(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = milliwatts(gpu->index); return OK; }
API int nvmlDeviceGetPowerManagementLimit(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 700000; return OK; }
API int nvmlDeviceGetPowerManagementDefaultLimit(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 700000; return OK; }
API int nvmlDeviceGetEnforcedPowerLimit(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 700000; return OK; }
API int nvmlDeviceGetTotalEnergyConsumption(gpu_t *gpu, uint64_t *out) { ON(gpu); *out = millijoules(gpu->index); return OK; }
API int nvmlDeviceGetCurrPcieLinkGeneration(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 5; return OK; }
API int nvmlDeviceGetMaxPcieLinkGeneration(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 5; return OK; }
API int nvmlDeviceGetCurrPcieLinkWidth(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 16; return OK; }
API int nvmlDeviceGetMaxPcieLinkWidth(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 16; return OK; }
API int nvmlDeviceGetEccMode(gpu_t *gpu, uint32_t *now, uint32_t *pending) { ON(gpu); *now = *pending = 1; return OK; }
API int nvmlDeviceGetPcieThroughput(gpu_t *gpu, uint32_t counter, uint32_t *out) { ON(gpu); *out = (uint32_t)((counter + 3) * 1e6 * load_of(gpu->index)); return OK; }
API int nvmlDeviceGetMigMode(gpu_t *gpu, uint32_t *current, uint32_t *pending) { ON(gpu); *current = *pending = now_control.mig[gpu->index]; return OK; }
API int nvmlDeviceGetMaxMigDeviceCount(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 7; return OK; }
/* Each GPU instance has one compute instance, whose index is the GPU instance's id less one. */
API int nvmlDeviceGetMigDeviceHandleByIndex(gpu_t *gpu, uint32_t index, gpu_t **out) {
    ON(gpu);
    if (index + 1 >= MAX_INSTANCES || !now_control.divided[gpu->index][index + 1]) return NOT_FOUND;
    *out = &instances[gpu->index][index + 1];
    return OK;
}
API int nvmlDeviceGetGpuInstanceId(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = (uint32_t)gpu->instance; return gpu->instance ? OK : INVALID; }
API int nvmlDeviceGetComputeInstanceId(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 0; return gpu->instance ? OK : INVALID; }
API int nvmlDeviceGetGpuFabricInfoV(gpu_t *gpu, void *out) {
    struct { uint32_t version; uint8_t cluster[16]; uint32_t status, clique, state, health; } *info = out;
    ON(gpu);
    memset(info->cluster, 0, 16);
    info->status = (uint32_t)now_control.fabric[gpu->index];
    info->clique = 0;
    info->state = 3;
    info->health = info->status ? 0 : 0x51AA; /* nothing is wrong with it */
    return OK;
}

/* ---- performance monitoring ----------------------------------------------------------------------- */

API int nvmlGpmQueryDeviceSupport(gpu_t *gpu, uint32_t *out) { ON(gpu); out[1] = 1; return OK; }
API int nvmlGpmSampleAlloc(sample_t **out) { *out = calloc(1, sizeof **out); return OK; }
API int nvmlGpmSampleFree(sample_t *sample) { free(sample); return OK; }
API int nvmlGpmSampleGet(gpu_t *gpu, sample_t *sample) {
    ON(gpu);
    *sample = (sample_t){ monotonic(), 20 * load_of(0) };
    return OK;
}
API int nvmlGpmMigSampleGet(gpu_t *gpu, uint32_t instance, sample_t *sample) {
    ON(gpu);
    if (instance >= MAX_INSTANCES || !now_control.divided[gpu->index][instance]) return INVALID;
    if (now_control.activity[gpu->index][instance] < 0) return UNSUPPORTED;
    *sample = (sample_t){ monotonic(), now_control.activity[gpu->index][instance] };
    return OK;
}
/* Metric N of a GPU is N percent plus a slow wave, of an instance as the control file says; an interval of 100 ms or less gives zeroes, as on hardware. */
API int nvmlGpmMetricsGet(metrics_t *get) {
    if (get->version != 1) return 25;
    int usable = get->second->at - get->first->at > 0.1;
    for (uint32_t i = 0; i < get->count; i++) {
        metric_t *metric = &get->metrics[i];
        metric->code = metric->id < 477 ? OK : INVALID;
        metric->value = usable ? metric->id + get->second->percent : 0;
    }
    return OK;
}

/* ---- events ----------------------------------------------------------------------------------------- */

API int nvmlEventSetCreate(events_t **out) {
    NODE();
    *out = calloc(1, sizeof **out);
    (*out)->seen = xids;
    return OK;
}
API int nvmlEventSetFree(events_t *set) { free(set); return OK; }
API int nvmlDeviceGetSupportedEventTypes(gpu_t *gpu, uint64_t *out) { WHO(gpu); *out = 0x1f; return OK; }
API int nvmlDeviceRegisterEvents(gpu_t *gpu, uint64_t types, events_t *set) {
    WHO(gpu);
    if (types & 8) set->registered |= 1u << gpu->index;
    return OK;
}
API int nvmlEventSetWait_v2(events_t *set, event_t *out, uint32_t milliseconds) {
    double until = monotonic() + milliseconds * 1e-3;
    for (;;) {
        NODE();
        if (set->seen > xids) set->seen = xids;
        while (set->seen < xids) {
            int gpu = xid[set->seen].gpu, code = xid[set->seen].code;
            set->seen++;
            if (set->registered & 1u << gpu) {
                *out = (event_t){ &gpus[gpu], 8, (uint64_t)code, 0xFFFFFFFF, 0xFFFFFFFF };
                return OK;
            }
        }
        double left = until - monotonic();
        if (left <= 0) return TIMEOUT;
        /* Without a control file nothing can come: wait as the driver does, at no cost. */
        usleep(getenv("COLDPLATE_FAKE_NVML") || left < 0.01 ? 10000 : (useconds_t)(left * 1e6));
    }
}

/* ---- processes, and what nvitop-exporter asks besides ---------------------------------------------------------------- */

API int nvmlDeviceGetPersistenceMode(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 1; return OK; }
API int nvmlDeviceGetPerformanceState(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 0; return OK; }
API int nvmlDeviceGetComputeMode(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 0; return OK; }
API int nvmlDeviceGetDisplayMode(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 0; return OK; }
API int nvmlDeviceGetDisplayActive(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 0; return OK; }
API int nvmlDeviceGetFanSpeed(gpu_t *gpu, uint32_t *out) { (void)out; ON(gpu); return UNSUPPORTED; }
API int nvmlDeviceGetTotalEccErrors(gpu_t *gpu, uint32_t type, uint32_t counter, uint64_t *out) { (void)counter; ON(gpu); *out = type ? 0 : 2; return OK; }
API int nvmlDeviceIsMigDeviceHandle(gpu_t *gpu, uint32_t *out) { ON(gpu); *out = 0; return OK; }
API int nvmlDeviceGetConfComputeMemSizeInfo(gpu_t *gpu, uint64_t *out) { (void)out; ON(gpu); return UNSUPPORTED; }
static int no_processes(gpu_t *gpu, uint32_t *count) { ON(gpu); *count = 0; return OK; }
static int processes(gpu_t *gpu, uint32_t *count, process_t *out, uint32_t running, const uint32_t *pids) {
    ON(gpu);
    uint32_t room = *count;
    *count = running;
    if (room < running) return TOO_SMALL;
    for (uint32_t i = 0; i < running; i++) out[i] = (process_t){ pids[i], 1u << 30, 0xFFFFFFFF, 0xFFFFFFFF };
    return OK;
}
API int nvmlDeviceGetComputeRunningProcesses_v3(gpu_t *gpu, uint32_t *count, process_t *out) {
    return processes(gpu, count, out, now_control.running[gpu->index], now_control.pids[gpu->index]);
}
API int nvmlDeviceGetMPSComputeRunningProcesses_v3(gpu_t *gpu, uint32_t *count, process_t *out) {
    return processes(gpu, count, out, now_control.clients[gpu->index], now_control.client_pids[gpu->index]);
}
API int nvmlDeviceGetGraphicsRunningProcesses_v3(gpu_t *gpu, uint32_t *count, void *out) { (void)out; return no_processes(gpu, count); }
API int nvmlDeviceGetProcessUtilization(gpu_t *gpu, share_t *out, uint32_t *count, uint64_t since_us) {
    ON(gpu);
    uint32_t room = *count, told = now_control.told[gpu->index];
    uint64_t time_us = 1 + (uint64_t)(phase() * 1e6);
    if (!told || time_us <= since_us) return NOT_FOUND;
    *count = told;
    if (room < told) return TOO_SMALL;
    for (uint32_t i = 0; i < told; i++) {
        uint32_t running = now_control.running[gpu->index];
        uint32_t pid = i < running ? now_control.pids[gpu->index][i] : now_control.client_pids[gpu->index][i - running];
        out[i] = (share_t){ pid, time_us, now_control.percents[gpu->index][i], 0, 0, 0 };
    }
    return OK;
}
