// Every loop of the host backend that visits all elements, with each instruction set.

#include "counted.hpp"

#include <zero/core/buffer.hpp>
#include <zero/host/host_backend.hpp>
#include <zero/ops/adamw.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace zero;

HostBackend::Queue queue() {
    return HostBackend::default_compute_queue();
}

/// Elements at a multiple of 128 bytes, because large results bypass the caches.
template <class T>
Buffer<T> numbers(std::size_t n) {
    Buffer<T> result(HostBackend::default_memory(), n, BufferKind::scratch);
    for (std::size_t i = 0; i < n; ++i) {
        result.data()[i] = from_float<T>(0.01F * static_cast<float>(i % 97 + 1));
    }
    return result;
}

struct Group {
    AdamW::Hyper hyper = AdamW::hyper({}, 1e-3, 1);
};

template <class A, class Weights>
struct Update {
    using Slice = UpdateSlice<A, Weights, StatePointers<2, float>>;

    Update(std::size_t n, Weights weights)
        : gradient(numbers<A>(n)), first(numbers<float>(n)), second(numbers<float>(n)) {
        static_cast<Weights&>(slice) = weights;
        slice.states = {first.data(), second.data()};
        slice.gradient = gradient.data();
        slice.elements = n;
    }
    void operator()() const {
        HostBackend::update<AdamW>(queue(), std::span<Slice const>(&slice, 1), &group, &decision);
    }

    Buffer<A> gradient;
    Buffer<float> first;
    Buffer<float> second;
    Slice slice{};
    Group group{};
    UpdateDecision decision{};
};

struct UpdateFloat {
    explicit UpdateFloat(std::size_t n)
        : master(numbers<float>(n)), update(n, {master.data(), nullptr}) {}
    void operator()() const { update(); }
    Buffer<float> master;
    Update<float, MasterPointers<float, float>> update;
};

struct UpdateBfloat16 {
    explicit UpdateBfloat16(std::size_t n)
        : master(numbers<float>(n)), parameter(numbers<bfloat16>(n)),
          update(n, {master.data(), parameter.data()}) {}
    void operator()() const { update(); }
    Buffer<float> master;
    Buffer<bfloat16> parameter;
    Update<float, MasterPointers<float, bfloat16>> update;
};

struct UpdateSplit {
    explicit UpdateSplit(std::size_t n)
        : parameter(numbers<bfloat16>(n)), remainder(n), rounded_up(n / 8),
          update(n, {parameter.data(), remainder.data(), rounded_up.data()}) {}
    void operator()() const { update(); }
    Buffer<bfloat16> parameter;
    std::vector<std::uint16_t> remainder;
    std::vector<std::uint8_t> rounded_up;
    Update<float, SplitPointers> update;
};

template <class T>
struct Inspect {
    explicit Inspect(std::size_t n) : values(numbers<T>(n)), slice{values.data(), n, 0} {}
    void operator()() {
        HostBackend::inspect<T>(queue(), std::span<InspectSlice<T> const>(&slice, 1), &result);
    }
    Buffer<T> values;
    InspectSlice<T> slice;
    ops::Inspection result;
};

template <class To, class From>
struct Cast {
    explicit Cast(std::size_t n) : out(numbers<To>(n)), in(numbers<From>(n)) {}
    void operator()() const {
        HostBackend::convert(queue(), out.data(), in.data(), in.size(), 1.0F);
    }
    Buffer<To> out;
    Buffer<From> in;
};

template <class To, class From>
struct Accumulate {
    explicit Accumulate(std::size_t n) : sum(numbers<To>(n)), in(numbers<From>(n)) {}
    void operator()() const { HostBackend::accumulate(queue(), sum.data(), in.data(), in.size()); }
    Buffer<To> sum;
    Buffer<From> in;
};

template <class T>
struct SumOfFourRanks {
    explicit SumOfFourRanks(std::size_t n)
        : out(numbers<T>(n)), in{numbers<T>(n), numbers<T>(n), numbers<T>(n), numbers<T>(n)} {}
    void operator()() const {
        std::array<T const*, 4> const peers{in[0].data(), in[1].data(), in[2].data(), in[3].data()};
        HostBackend::sum_ranks(queue(), out.data(), peers.data(), 4, out.size());
    }
    Buffer<T> out;
    std::array<Buffer<T>, 4> in;
};

/// Tensors of 64 elements, so that the cost per tensor shows besides the cost per byte.
template <bool to_bucket>
struct Flatten {
    explicit Flatten(std::size_t n) : tensors(numbers<float>(n)), bucket(numbers<float>(n)) {
        for (std::size_t begin = 0; begin < n; begin += 64) {
            slices.push_back({tensors.data() + begin, begin, 64});
        }
    }
    void operator()() const {
        if constexpr (to_bucket) {
            HostBackend::copy_to_bucket<float>(queue(), slices, bucket.data());
        } else {
            HostBackend::copy_from_bucket<float>(queue(), slices, bucket.data());
        }
    }
    Buffer<float> tensors;
    Buffer<float> bucket;
    std::vector<CopySlice<float>> slices;
};

/// Long enough that work done once per few thousand elements weighs as it does in long loops, and
/// too short to bypass the caches.
constexpr std::size_t some = 65536;

/// Just long enough to bypass the caches.
constexpr std::size_t many(std::size_t bytes_per_element) {
    return (host::detail::streaming_bytes / bytes_per_element / 64 + 1) * 64;
}

} // namespace

void zero::test::count_hot_loops(host::InstructionSet set) {
    std::string const on = std::string("/") + host::name_of(set);
    count<UpdateFloat>("update/float32" + on, some);
    count<UpdateBfloat16>("update/bfloat16" + on, some);
    count<UpdateSplit>("update/split" + on, some);
    count<Inspect<float>>("inspect/float32" + on, some);
    count<Inspect<bfloat16>>("inspect/bfloat16" + on, some);
    count<Cast<bfloat16, float>>("cast/float32_to_bfloat16" + on, some);
    count<Cast<float, bfloat16>>("cast/bfloat16_to_float32" + on, some);
    count<Accumulate<float, bfloat16>>("accumulate/bfloat16_to_float32" + on, some);
    count<SumOfFourRanks<float>>("sum_of_4_ranks/float32" + on, some);
    count<SumOfFourRanks<bfloat16>>("sum_of_4_ranks/bfloat16" + on, some);
    count<Flatten<true>>("flatten/float32" + on, some);
    count<Flatten<false>>("unflatten/float32" + on, some);
    if (set != host::InstructionSet::baseline) { // the baseline has ordinary stores
        count<UpdateBfloat16>("update/bfloat16/streaming" + on, many(30));
        count<Cast<bfloat16, float>>("cast/float32_to_bfloat16/streaming" + on, many(6));
        count<SumOfFourRanks<float>>("sum_of_4_ranks/float32/streaming" + on, many(20));
    }
}
