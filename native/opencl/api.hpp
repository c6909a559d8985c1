// The functions of OpenCL that commands need, declared here and looked up at run time: nothing is linked, and no header
// of OpenCL is needed to build. Names and numbers are those of the specification (OpenCL 3.0, and its cl.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace hcq::opencl {

using Handle = void*;  // of any of OpenCL's objects
using Status = int32_t;
using EventCallback = void (*)(Handle event, Status status, void* user);

constexpr Status kSuccess = 0, kComplete = 0, kNoHostMemory = -6, kNoMemoryObject = -38;
constexpr uint32_t kEventStatus = 0x11D3;
constexpr uint32_t kQueued = 0x1280, kStarted = 0x1282, kEnded = 0x1283;
constexpr uint64_t kQueueProperties = 0x1093, kProfiling = 1 << 1;

struct ImageFormat {
  uint32_t order, type;
};
struct ImageShape {
  uint32_t kind;
  size_t width, height, depth, layers, row_bytes, slice_bytes;
  uint32_t levels, samples;
  Handle memory;
};
constexpr uint32_t kImage2D = 0x10F1;
constexpr uint64_t kReadWrite = 1;

struct Api {
  Handle (*clCreateCommandQueueWithProperties)(Handle context, Handle device, const uint64_t* properties, Status*);
  Status (*clReleaseCommandQueue)(Handle);
  Status (*clRetainContext)(Handle);
  Status (*clReleaseContext)(Handle);
  Status (*clRetainKernel)(Handle);
  Status (*clReleaseKernel)(Handle);
  Status (*clSetKernelArg)(Handle kernel, uint32_t index, size_t size, const void* value);
  Status (*clSetKernelArgSVMPointer)(Handle kernel, uint32_t index, const void* pointer);
  Status (*clEnqueueNDRangeKernel)(Handle queue, Handle kernel, uint32_t dimensions, const size_t* offset,
                                   const size_t* global, const size_t* local, uint32_t waits, const Handle* wait_list,
                                   Handle* event);
  Status (*clEnqueueSVMMemcpy)(Handle queue, uint32_t blocking, void* destination, const void* source, size_t bytes,
                               uint32_t waits, const Handle* wait_list, Handle* event);
  Status (*clEnqueueMarkerWithWaitList)(Handle queue, uint32_t waits, const Handle* wait_list, Handle* event);
  Status (*clFlush)(Handle queue);
  Handle (*clCreateImage)(Handle context, uint64_t flags, const ImageFormat*, const ImageShape*, void* host, Status*);
  Status (*clReleaseMemObject)(Handle);
  Status (*clEnqueueReadImage)(Handle queue, Handle image, uint32_t blocking, const size_t* origin,
                               const size_t* region, size_t row_bytes, size_t slice_bytes, void* to, uint32_t waits,
                               const Handle* wait_list, Handle* event);
  Status (*clEnqueueWriteImage)(Handle queue, Handle image, uint32_t blocking, const size_t* origin,
                                const size_t* region, size_t row_bytes, size_t slice_bytes, const void* from,
                                uint32_t waits, const Handle* wait_list, Handle* event);
  Status (*clEnqueueCopyImage)(Handle queue, Handle from, Handle to, const size_t* from_origin, const size_t* to_origin,
                               const size_t* region, uint32_t waits, const Handle* wait_list, Handle* event);
  Status (*clGetEventInfo)(Handle event, uint32_t what, size_t size, void* value, size_t* actual);
  Status (*clGetEventProfilingInfo)(Handle event, uint32_t what, size_t size, void* value, size_t* actual);
  Status (*clSetEventCallback)(Handle event, Status type, EventCallback call, void* user);
  Status (*clReleaseEvent)(Handle);
};

// Finds the functions in `library`, or what that was linked with. False: why not is in `error`.
bool load(const char* library, std::string* error);
const Api& api();  // after load

// For tests: the next call of a function is answered with `status` and does nothing; without a name all calls are,
// until that is asked for with kSuccess. What asks for the state of an event gives `status` as the state, once the
// command is over. False: no function that can fail like that has this name. Nothing else may use OpenCL meanwhile.
bool fail(const std::string& function, Status status);

// "CL_OUT_OF_RESOURCES (-5)".
std::string status_name(Status);
// Whether a call failed; `error` says so then.
bool failed(Status status, const char* what, std::string* error);

}  // namespace hcq::opencl
