#pragma once

#include "../../../backend/fence.hpp"
#include "../../../backend/slices.hpp"
#include "../../../backend/update_decision.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../host/host_backend.hpp"
#include "../../../host/inline_queue.hpp"
#include "../../../host/threaded_queue.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../ops/block_scale.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "../common/drain.hpp"
#include "../common/engine_context.hpp"
#include "../common/step_state.hpp"
#include "../memory/offloaded_states.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Moves pointers of a slice to a later element of it.
/// @param elements a multiple of 64
template <class M, class P>
void skip(MasterPointers<M, P>& weights, std::size_t elements) noexcept {
    weights.master += elements;
    weights.parameter += weights.parameter == nullptr ? 0 : elements;
}

inline void skip(SplitPointers& weights, std::size_t elements) noexcept {
    constexpr std::size_t bits_in_byte = 8;
    weights.parameter += elements;
    weights.remainder += elements;
    weights.rounded_up += elements / bits_in_byte;
}

template <class P>
void skip(StochasticPointers<P>& weights, std::size_t elements) noexcept {
    weights.parameter += elements;
    weights.first_index += elements;
}

template <std::size_t States, class S>
void skip(StatePointers<States, S>& states, std::size_t elements) noexcept {
    for (S*& state : states.states) {
        state += elements;
    }
}

template <std::size_t States>
void skip(ScaledStatePointers<States>& states, std::size_t elements) noexcept {
    skip(static_cast<StatePointers<States, float16>&>(states), elements);
    for (float*& scale : states.scales) {
        scale += elements / ops::scaled_block_elements;
    }
}

template <class Pointers>
void skip(StochasticStates<Pointers>& states, std::size_t elements) noexcept {
    skip(static_cast<Pointers&>(states), elements);
    states.first_index += elements;
}

/// @brief Returns the part of a slice that begins at an element.
/// @param begin a multiple of 64
template <class A, class Weights, class States>
[[nodiscard]] UpdateSlice<A, Weights, States>
part_of(UpdateSlice<A, Weights, States> slice, std::size_t begin, std::size_t elements) noexcept {
    slice.gradient += begin;
    skip(static_cast<Weights&>(slice), begin);
    skip(static_cast<States&>(slice), begin);
    slice.elements = elements;
    return slice;
}

/// @brief Updates the slices of one parameter type on the host, for an engine whose backend is a
/// device. Master weights and states lie in page-locked memory for good; gradients and parameters
/// pass through `depth` places there, one bucket at a time.
///
/// The update of a bucket is a function of the host on a queue of its own (`Backend::run_on_host`).
/// Two events order it, as between any two queues of the backend: the update waits for the copies
/// down (`chunk_read`), and the copies up, and the next copies down to the same place, wait for the
/// update (`chunk_updated`). So no queue waits for another thread: a function runs when its queue
/// reaches it, and waits for threads of this object alone, which share the bucket. The decision and
/// the rows of the groups go down before the first bucket; the caller waits for nothing. A skipped
/// step copies parameters down and up again.
template <class Config, class Types, class Slice>
class HostUpdate<Config, Types, Slice, true> {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;
    using Optimizer = typename Config::Optimizer;
    using Group = GroupState<Optimizer>;
    static constexpr std::size_t depth = 2; ///< one is updated while the other is copied

    HostUpdate() = default;

    /// @param slices those of the device, in the order of the buckets
    /// @param first_slice by bucket: index of its first slice; then the total
    [[gnu::cold]] HostUpdate(TypeContext<Config> const& context, List<Slice> const& slices,
                             std::vector<std::size_t> const& first_slice)
        : _queue(context.queue), _slices(as_span(slices)),
          _parameters(context.layout->parameters().size()) {
        std::size_t groups = larger<std::size_t>(1, context.options->groups.size());
        for (auto const& parameter : context.layout->parameters()) {
            groups = larger(groups, parameter.group + 1);
        }
        _rows_used = context.counts_by_parameter ? _parameters : groups;
        for (std::size_t bucket = first_slice.size() - 1; bucket-- > 0;) { // as a step updates
            std::size_t const first = first_slice[bucket];
            std::size_t const count = first_slice[bucket + 1] - first;
            if (count != 0) {
                _buckets.push_back({bucket, std::span<Slice>(_slices.data() + first, count)});
            }
        }
        lay_out(larger(groups, _parameters));
        std::size_t const threads = context.options->offload.threads;
        std::size_t most_parts = 1;
        for (Bucket& bucket : _buckets) {
            cut(bucket, threads == 0 ? default_threads(bucket.elements()) : threads);
            most_parts = larger(most_parts, bucket.parts.size());
        }
        _stream = std::make_unique<Stream>();
        for (std::size_t thread = 1; thread < most_parts; ++thread) {
            _stream->threads.push_back(std::make_unique<host::ThreadedQueue>(queue_capacity));
        }
        for (Bucket& bucket : _buckets) {
            bucket.stream = _stream.get();
        }
    }

    /// @brief Bytes of page-locked memory, beside those of the states.
    [[nodiscard]] std::size_t bytes() const noexcept { return _memory.size_bytes(); }

    /// @brief Enqueues the update of a bucket. Buckets come in descending order, all of them.
    /// @param rows, decision in the memory of the device, written by commands on its queue
    void update(std::size_t bucket, Group const* rows, UpdateDecision const* decision) {
        if (_next == _buckets.size() || _buckets[_next].number != bucket) {
            return; // this rank updates nothing of it
        }
        if (_next == 0) {
            Backend::copy_bytes(_queue, _rows, rows, _rows_used * sizeof(Group));
            Backend::copy_bytes(_queue, _decision, decision, sizeof(UpdateDecision));
            for (std::size_t ahead = 0; ahead < smaller(depth, _buckets.size()); ++ahead) {
                begin(ahead);
            }
        }
        Backend::wait(_queue, _updated[_next % depth], Fence::chunk_updated);
        for (Copy const& copy : _buckets[_next].parameters) {
            Backend::copy_bytes(_queue, copy.device, copy.host, copy.bytes);
        }
        if (_next + depth < _buckets.size()) {
            begin(_next + depth);
        }
        _next = _next + 1 == _buckets.size() ? 0 : _next + 1;
    }

    /// @brief Makes slices name parameters. No pending command may use them.
    /// @param slices those of the device, which do so already
    [[gnu::cold]] void count_by_parameter(List<Slice> const& slices) {
        for (Bucket& bucket : _buckets) {
            for (Part& part : bucket.parts) {
                for (std::size_t index = 0; index < part.slices.size(); ++index) {
                    part.slices[index].group = slices[part.whole[index]].group;
                }
            }
        }
        _rows_used = _parameters;
    }

private:
    using A = typename Types::Accumulation;
    using P = typename Types::Parameter;

    static constexpr std::size_t alignment = 64;      ///< of a cache line
    static constexpr std::size_t block = 64;          ///< elements; slices are cut between them
    static constexpr std::size_t fewest = 1U << 14U;  ///< elements that are worth a thread
    static constexpr std::size_t most_by_default = 8; ///< threads
    static constexpr std::size_t queue_capacity = 4;  ///< commands of a thread

    /// Memory of the device, and where it goes on the host.
    struct Copy {
        std::byte* device;
        std::byte* host;
        std::size_t bytes;
    };

    /// What one thread updates of a bucket.
    struct Part {
        List<Slice> slices{};
        List<std::size_t> whole{}; ///< by slice: number of the slice of the device
    };

    /// The queue of the updates, and the other threads that run them. Waits for the queue when it
    /// is destroyed, before the memory goes.
    struct Stream {
        List<std::unique_ptr<host::ThreadedQueue>> threads{};
        typename Backend::OwnedQueue own;
        Stream() = default;
        Stream(Stream const&) = delete;
        Stream& operator=(Stream const&) = delete;
        ~Stream() { drain<Backend>(Backend::handle(own)); }
    };

    struct Bucket {
        std::size_t number = 0;
        std::span<Slice> slices{}; ///< of the host
        List<Part> parts{};        ///< the same slices, cut
        Stream* stream = nullptr;
        Group const* rows = nullptr;
        UpdateDecision const* decision = nullptr;
        List<Copy> gradients{};  ///< down
        List<Copy> parameters{}; ///< down and up

        [[nodiscard]] std::size_t elements() const noexcept {
            std::size_t sum = 0;
            for (Slice const& slice : slices) {
                sum += slice.elements;
            }
            return sum;
        }
    };

    [[nodiscard]] static constexpr std::size_t rounded_up(std::size_t bytes) noexcept {
        return (bytes + alignment - 1) / alignment * alignment;
    }

    /// Where a slice has the address of its parameters.
    [[nodiscard]] static auto& parameter_of(Slice& slice) noexcept {
        if constexpr (Types::master_form == MasterForm::own) {
            return slice.master;
        } else {
            return slice.parameter;
        }
    }

    /// Redirects an address to the host, and notes the copy. Neighbours are copied together.
    template <class T>
    static void redirect(T*& address, std::size_t elements, std::byte*& free, List<Copy>& copies) {
        // gradients are written by their reduction, not through slices
        auto* const device =
            reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(address));
        std::size_t const bytes = elements * sizeof(T);
        Copy* const last = copies.empty() ? nullptr : &copies[copies.size() - 1];
        if (last != nullptr && last->device + last->bytes == device) {
            last->bytes += bytes;
        } else {
            copies.push_back({device, free, bytes});
        }
        address = reinterpret_cast<T*>(free);
        free += bytes;
    }

    /// Allocates the page-locked memory and lets the slices of the host point there.
    [[gnu::cold]] void lay_out(std::size_t most_rows) {
        std::size_t most = 0;
        for (Bucket const& bucket : _buckets) {
            most = larger(most, bucket.elements());
        }
        std::size_t const gradient_bytes = rounded_up(most * sizeof(A));
        std::size_t const place_bytes = gradient_bytes + rounded_up(most * sizeof(P));
        std::size_t const places = smaller(depth, _buckets.size()) * place_bytes;
        std::size_t const row_bytes = rounded_up(most_rows * sizeof(Group));
        _memory = Buffer<std::byte>(Backend::staging_memory(),
                                    places + row_bytes + rounded_up(sizeof(UpdateDecision)),
                                    BufferKind::staging);
        _rows = _memory.data() + places;
        _decision = _rows + row_bytes;
        for (std::size_t index = 0; index < _buckets.size(); ++index) {
            Bucket& bucket = _buckets[index];
            bucket.rows = reinterpret_cast<Group const*>(_rows);
            bucket.decision = reinterpret_cast<UpdateDecision const*>(_decision);
            std::byte* gradients = _memory.data() + index % depth * place_bytes;
            std::byte* parameters = gradients + gradient_bytes;
            for (Slice& slice : bucket.slices) {
                redirect(slice.gradient, slice.elements, gradients, bucket.gradients);
                redirect(parameter_of(slice), slice.elements, parameters, bucket.parameters);
            }
        }
    }

    [[nodiscard]] static std::size_t default_threads(std::size_t elements) noexcept {
        std::size_t const threads = smaller(most_by_default, elements / fewest);
        return larger<std::size_t>(
            1, smaller<std::size_t>(threads, std::thread::hardware_concurrency()));
    }

    /// Cuts the slices of a bucket into parts of nearly equal length.
    [[gnu::cold]] void cut(Bucket& bucket, std::size_t threads) {
        std::size_t const most = (bucket.elements() + threads - 1) / threads;
        std::size_t room = 0;
        for (Slice const& slice : bucket.slices) {
            for (std::size_t begin = 0; begin < slice.elements;) {
                if (room == 0) {
                    bucket.parts.push_back({});
                    room = most;
                }
                Part& part = bucket.parts[bucket.parts.size() - 1];
                std::size_t const whole_blocks = (room + block - 1) / block * block;
                std::size_t const count = smaller(whole_blocks, slice.elements - begin);
                part.slices.push_back(part_of(slice, begin, count));
                part.whole.push_back(static_cast<std::size_t>(&slice - _slices.begin()));
                begin += count;
                room -= smaller(room, count);
            }
        }
    }

    /// Enqueues the copies down and the update. Commands enqueued before wait for the update that
    /// used the place last.
    void begin(std::size_t index) {
        Bucket& bucket = _buckets[index];
        for (List<Copy> const* const copies : {&bucket.gradients, &bucket.parameters}) {
            for (Copy const& copy : *copies) {
                Backend::copy_bytes(_queue, copy.host, copy.device, copy.bytes);
            }
        }
        Queue const host = Backend::handle(_stream->own);
        Backend::wait(host, Backend::record(_queue), Fence::chunk_read);
        Backend::run_on_host(host, &run, &bucket);
        _updated[index % depth] = Backend::record(host);
    }

    static void run(void* argument) {
        auto const& bucket = *static_cast<Bucket const*>(argument);
        auto const update = [&bucket](auto* queue, Part const& part) {
            HostBackend::update<Optimizer>(queue, as_span(part.slices), bucket.rows,
                                           bucket.decision);
        };
        std::size_t const parts = bucket.parts.size();
        for (std::size_t part = 1; part < parts; ++part) {
            update(bucket.stream->threads[part - 1].get(), bucket.parts[part]);
        }
        host::InlineQueue queue; // the command runs at once, with the default rounding
        update(&queue, bucket.parts[0]);
        for (std::size_t part = 1; part < parts; ++part) {
            bucket.stream->threads[part - 1]->record().synchronise();
        }
    }

    Queue _queue{};
    List<Slice> _slices; ///< as the host updates them
    std::size_t _parameters = 0;
    std::size_t _rows_used = 0;
    Buffer<std::byte> _memory;
    std::byte* _rows = nullptr;
    std::byte* _decision = nullptr;
    List<Bucket> _buckets; ///< in the order of a step; those of which this rank updates something
    std::size_t _next = 0; ///< the next bucket of the step
    std::array<Event, depth> _updated{};
    std::unique_ptr<Stream> _stream;
};

} // namespace ZERO_NAMESPACE::detail
