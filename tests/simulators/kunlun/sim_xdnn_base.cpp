// Base types of libxpuapi as a program uses them: every line that fails says which check it was.
#include <cstdio>
#include <cstring>
#include <vector>

#include "xpu/xdnn.h"

namespace api = baidu::xpu::api;

namespace {

int failures = 0;

void check(bool holds, const char* what) {
    if (!holds) {
        std::printf("failed: %s\n", what);
        ++failures;
    }
}

std::vector<float> fetch(const float* device, size_t count) {
    std::vector<float> host(count);
    check(xpu_memcpy(host.data(), device, count * sizeof(float), XPU_DEVICE_TO_HOST) == 0, "fetch");
    return host;
}

void contexts() {
    api::Context* ctx = api::create_context();
    check(ctx != nullptr, "a context on device 0");
    check(ctx->dev() == api::Device(api::kXPU3, 0), "device 0 of the third generation");
    check(ctx->get_stream() == nullptr && ctx->xpu_stream == nullptr, "the default queue");
    api::destroy_context(ctx);
    xpu_set_device(1);
    ctx = api::create_context();
    check(ctx != nullptr && ctx->dev().id() == 1, "a context on device 1");
    xpu_set_device(0);
    float* place = nullptr;
    xpu_malloc(reinterpret_cast<void**>(&place), 64, XPU_MEM_MAIN);
    check(api::constant(ctx, place, 4, 1.0f) == api::INVALID_PARAM, "another device's queue");
    xpu_free(place);
    api::destroy_context(ctx);
    api::Context host{api::Device(api::kCPU)};
    check(api::constant(&host, place, 4, 1.0f) == api::NOT_IMPLEMENT, "no host context");
}

void queues(api::Context* ctx) {
    XPUStream stream = nullptr;
    check(xpu_stream_create(&stream) == 0, "stream");
    ctx->set_stream(stream, true);
    check(ctx->get_stream() == stream, "the queue that was set");
    api::ctx_guard guard(ctx);
    float* ones = guard.alloc<float>(8);
    check(api::constant(ctx, ones, 8, 1.0f) == api::SUCCESS, "constant on a queue");
    check(xpu_wait(stream) == 0 && fetch(ones, 8)[7] == 1.0f, "the queue ran it");
    ctx->set_stream(nullptr);
    check(xpu_stream_destroy(stream) != 0, "an owned queue is destroyed with its place");
}

void scratch(api::Context* ctx) {
    float* first = nullptr;
    {
        api::ctx_guard outer(ctx);
        first = outer.alloc<float>(3);
        float* second = outer.alloc<float>(1);
        check(second == first + 16, "blocks of 64 bytes, one behind the other");
        {
            api::ctx_guard inner(ctx);
            check(inner.alloc<float>(4) == second + 16, "a level above");
        }
        check(outer.alloc<float>(4) == second + 16, "given back with its guard");
        float* large = outer.alloc<float>(size_t{4} << 20);
        check(large != nullptr && large != first, "grows beyond its block");
        check(outer.alloc_l3<float>(4) == nullptr, "no L3 until it is set");
        check(outer.alloc_l3_or_gm<float>(4) != nullptr, "main memory instead of L3");
        check(outer.alloc<char>(size_t{200} << 30) == nullptr, "more than the card has");
    }
    api::ctx_guard again(ctx);
    check(again.alloc<float>(1) == first, "kept for the next guard");
    check(ctx->_gm_mgr.set(first, 64) == api::INVALID_PARAM, "not while a guard lives");
}

// A card's scratch is on that card, whatever card the thread uses, and goes back to it.
void scratch_of_another_card() {
    xpu_set_device(1);
    api::Context* ctx = api::create_context();
    xpu_set_device(0);
    char* place = nullptr;
    {
        api::ctx_guard guard(ctx);
        place = guard.alloc<char>(size_t{64} << 20);
        check(place != nullptr, "scratch of the other card");
    }
    int now = -1;
    check(xpu_current_device(&now) == 0 && now == 0, "the current card is what it was");
    char byte = 1;
    check(xpu_memcpy(place, &byte, 1, XPU_HOST_TO_DEVICE) != 0, "not on the current card");
    xpu_set_device(1);
    check(xpu_memcpy(place, &byte, 1, XPU_HOST_TO_DEVICE) == 0, "on the context's card");
    xpu_set_device(0);
    api::destroy_context(ctx);
    check(xpu_current_device(&now) == 0 && now == 0, "the current card is still what it was");
    xpu_set_device(1);
    check(xpu_free(place) != 0, "given back with its context");
    xpu_set_device(0);
}

// Scratch that cannot be given back is told: stderr of this program must name it.
void scratch_that_stays() {
    api::Context* ctx = api::create_context();
    void* place = nullptr;
    xpu_malloc(&place, 4096, XPU_MEM_MAIN);
    check(ctx->_gm_mgr.set(place, 4096, true) == api::SUCCESS, "memory that the context owns");
    xpu_free(place);
    api::destroy_context(ctx);
}

void fast_memory(api::Context* ctx) {
    void* fast = nullptr;
    check(xpu_malloc(&fast, 1024, XPU_MEM_L3) == 0, "L3");
    check(ctx->_l3_mgr.set(fast, 1024) == api::SUCCESS, "L3 of a context");
    check(ctx->_l3_mgr.get_ptr() == fast && ctx->_l3_mgr.get_size() == 1024, "which and how much");
    {
        api::ctx_guard guard(ctx);
        check(guard.alloc_l3<char>(1000) == fast, "taken from L3");
        check(guard.alloc_l3<char>(1000) == nullptr, "L3 does not grow");
    }
    check(ctx->_l3_mgr.set(nullptr, 0, true) == api::SUCCESS, "L3 taken away");
    check(ctx->_l3_mgr.get_size() == 0, "none left");
    xpu_free(fast);
}

void own_pool(api::Context* ctx) {
    std::vector<size_t> asked;
    int saved = 0, freed = 0;
    float pool[4];
    ctx->set_overload_alloc(
        [&](size_t bytes) -> void* {
            asked.push_back(bytes);
            return pool;
        },
        [&] { ++freed; }, [&] { ++saved; });
    {
        api::ctx_guard guard(ctx);
        check(guard.alloc<float>(4) == pool, "the caller's pool");
    }
    check(asked == std::vector<size_t>{16} && saved == 1 && freed == 1, "asked, saved, freed");
    ctx->unset_overload_alloc();
    api::ctx_guard guard(ctx);
    check(guard.alloc<float>(4) != pool && asked.size() == 1, "its own pool again");
}

void vectors(api::Context* ctx) {
    api::ctx_guard guard(ctx);
    float host[3] = {1.0f, 2.0f, 3.0f};
    const api::VectorParam<float> half{host, 3, nullptr};
    const api::VectorParam<float> both = half.to_xpu(guard);
    std::memset(host, 0, sizeof host);  // the copy was taken at the call
    check(both.cpu == host && both.len == 3 && both.xpu != nullptr, "two halves");
    check(xpu_wait(nullptr) == 0 && fetch(both.xpu, 3)[2] == 3.0f, "the device half");
    check(both.to_xpu(guard).xpu == both.xpu, "already there");
    check(api::do_host2device(ctx, host, both.xpu, 0) == api::INVALID_PARAM, "nothing to copy");
    check(api::do_host2device(nullptr, host, both.xpu, 4) == api::INVALID_PARAM, "no context");
}

void missing_wait(api::Context* ctx) {
    float* place = nullptr;
    xpu_malloc(reinterpret_cast<void**>(&place), 64, XPU_MEM_MAIN);
    check(api::constant(ctx, place, 16, 5.0f) == api::SUCCESS, "queued");
    const float early = fetch(place, 16)[15];
    check(xpu_wait(nullptr) == 0, "waited");
    const float late = fetch(place, 16)[15];
    check(early != 5.0f && late == 5.0f, "a copy without a wait sees old bytes");
    xpu_free(place);
}

void numbers() {
    check(static_cast<float>(float16(65520.0f)) > 65504.0f, "float16 overflows to infinity");
    check(static_cast<float>(float16(65519.0f)) == 65504.0f, "float16 rounds down below that");
    check(static_cast<float>(bfloat16(1.00390625f)) == 1.0f, "bfloat16 ties go to even, down");
    check(static_cast<float>(bfloat16(1.01171875f)) == 1.015625f, "and up");
}

}  // namespace

int main() {
    api::Context* ctx = api::create_context();
    numbers();
    contexts();
    queues(ctx);
    missing_wait(ctx);
    scratch(ctx);
    scratch_of_another_card();
    scratch_that_stays();
    fast_memory(ctx);
    own_pool(ctx);
    vectors(ctx);
    check(xpu_wait(nullptr) == 0, "the last wait");
    api::destroy_context(ctx);
    return failures;
}
