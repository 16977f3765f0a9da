/* The functions of NVIDIA's driver that ggml-cuda calls, each found in libcuda when it is called.

Compiled into ggml-cuda in place of linking it to libcuda: so a build needs no driver, and loads where
there is none. CUDA's runtime library, which looks for the driver in the same way, finds no device there,
and llama.cpp computes on the processor. None of these is called in a pass over tokens. */

#include <dlfcn.h>
#include <stddef.h>

#pragma GCC visibility push(hidden) /* another library's calls are not for us */

#include <cuda.h>

static void *in_driver(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? dlsym(driver, name) : NULL;
}

#define FORWARD(name, parameters, arguments)                                  \
    CUresult CUDAAPI name parameters {                                        \
        __typeof__(&name) found = (__typeof__(&name)) in_driver(#name);       \
        return found ? found arguments : CUDA_ERROR_NOT_INITIALIZED;          \
    }

FORWARD(cuGetErrorString, (CUresult error, const char **text), (error, text))
FORWARD(cuDeviceGet, (CUdevice *device, int ordinal), (device, ordinal))
FORWARD(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device), (value, attribute, device))
FORWARD(cuMemGetAllocationGranularity,
        (size_t *size, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags flags),
        (size, properties, flags))
FORWARD(cuMemAddressReserve,
        (CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted, unsigned long long flags),
        (address, size, alignment, wanted, flags))
FORWARD(cuMemAddressFree, (CUdeviceptr address, size_t size), (address, size))
FORWARD(cuMemCreate,
        (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *properties,
         unsigned long long flags),
        (handle, size, properties, flags))
FORWARD(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))
FORWARD(cuMemMap,
        (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
         unsigned long long flags),
        (address, size, offset, handle, flags))
FORWARD(cuMemUnmap, (CUdeviceptr address, size_t size), (address, size))
FORWARD(cuMemSetAccess, (CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count),
        (address, size, access, count))
