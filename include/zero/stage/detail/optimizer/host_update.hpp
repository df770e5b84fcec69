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
#include "../common/drain.hpp"
#include "../common/engine_context.hpp"
#include "../common/step_state.hpp"
#include "../memory/offloaded_states.hpp"
#include "moved_slices.hpp"

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Updates the slices of one parameter type on the host, for an engine whose backend is a
/// device. Master weights and states lie in page-locked memory for good. Gradients and parameters
/// may as well; otherwise they pass through `depth` places there, one chunk of a bucket at a time.
///
/// The update of a chunk is a function of the host on a queue of its own (`Backend::run_on_host`).
/// Two events order it, as between any two queues of the backend: the update waits for the copies
/// down (`chunk_read`), and the copies up, and the next copies down to the same place, wait for the
/// update (`chunk_updated`). So no queue waits for another thread: a function runs when its queue
/// reaches it, and waits for threads of this object alone, which share the chunk. The decision and
/// the rows of the groups go down before the first chunk; the caller waits for nothing. A skipped
/// step copies parameters down and up again.
///
/// With `DelayedUpdate` every chunk has a place of its own, so `begin` enqueues all copies down and
/// all updates, and the next step or `settle` the copies up.
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
        : _queue(context.queue), _parameters(context.layout->parameters().size()),
          _stream(std::make_unique<Stream>()) {
        auto& chunks = _stream->chunks;
        std::size_t const groups = groups_of(context);
        _rows_used = context.counts_by_parameter ? _parameters : groups;
        auto const& options = context.options->offload;
        for (std::size_t bucket = first_slice.size() - 1; bucket-- > 0;) { // as a step updates
            Part whole;
            for (std::size_t index = first_slice[bucket]; index < first_slice[bucket + 1];
                 ++index) {
                whole.add(slices[index], index);
            }
            for (Part& part : cut(whole, options.chunk_bytes / block_bytes * block)) {
                chunks.push_back({bucket, std::move(part)});
            }
        }
        lay_out(larger(groups, _parameters));
        for (Chunk& chunk : chunks) {
            std::size_t const elements = chunk.whole.elements();
            std::size_t const threads =
                options.threads == 0 ? default_threads(elements) : options.threads;
            chunk.parts = cut(chunk.whole, (elements + threads - 1) / threads);
            chunk.whole = Part();
            chunk.stream = _stream.get();
            while (_stream->threads.size() + 1 < chunk.parts.size()) {
                _stream->threads.push_back(std::make_unique<host::ThreadedQueue>(queue_capacity));
            }
        }
        if constexpr (Optimizer::whole_tensor) {
            give_scratch(context.options->poison);
        }
    }

    /// @brief Bytes of page-locked memory, beside those of the states.
    [[nodiscard]] std::size_t bytes() const noexcept {
        return _stream->memory.size_bytes() + _stream->scratch.size_bytes();
    }

    /// @brief Begins a step: enqueues the updates of as many chunks as there are places.
    /// @param rows, decision in the memory of the device, written by commands on its queue
    void begin(Group const* rows, UpdateDecision const* decision) {
        if (!_updated.empty()) {
            Backend::copy_bytes(_queue, _rows, rows, _rows_used * sizeof(Group));
            Backend::copy_bytes(_queue, _decision, decision, sizeof(UpdateDecision));
        }
        for (std::size_t chunk = 0; chunk < _updated.size(); ++chunk) {
            begin(chunk);
        }
    }

    /// @brief Enqueues the copies of updated parameters of a bucket to the device. Buckets come in
    /// descending order, all of them.
    void finish(std::size_t bucket) {
        auto const& chunks = _stream->chunks;
        std::size_t const places = _updated.size();
        for (; _next < chunks.size() && chunks[_next].bucket == bucket; ++_next) {
            Backend::wait(_queue, _updated[_next % places], Fence::chunk_updated);
            for (MovedRange const& range : chunks[_next].parameters) {
                Backend::copy_bytes(_queue, range.own, range.copy, range.bytes);
            }
            if (_next + places < chunks.size()) {
                begin(_next + places);
            }
        }
        _next = _next == chunks.size() ? 0 : _next;
    }

    /// @brief Enqueues the update of a bucket. Buckets come in descending order, all of them.
    /// @param rows, decision as for `begin`
    void update(std::size_t bucket, Group const* rows, UpdateDecision const* decision) {
        auto const& chunks = _stream->chunks;
        if (_next == 0 && !chunks.empty() && chunks[0].bucket == bucket) {
            begin(rows, decision);
        }
        finish(bucket);
    }

    /// @brief Waits for all updates that were begun.
    [[gnu::cold]] void wait() const { drain<Backend>(Backend::handle(_stream->own)); }

    /// @brief Makes slices name parameters. No pending command may use them.
    /// @param slices the slices of the device, which name parameters
    [[gnu::cold]] void count_by_parameter(List<Slice> const& slices) {
        for (Chunk& chunk : _stream->chunks) {
            for (Part& part : chunk.parts) {
                for (std::size_t index = 0; index < part.slices.size(); ++index) {
                    part.slices[index].group = slices[part.number[index]].group;
                }
            }
        }
        _rows_used = _parameters;
    }

private:
    using A = typename Types::Accumulation;
    using P = typename Types::Parameter;

    /// The next step writes gradients while a delayed update reads them.
    static constexpr bool moves_gradients =
        delays_update<Config> || !lies_on_host<Config>(BufferKind::gradients);
    static constexpr bool moves_parameters = !lies_on_host<Config>(BufferKind::parameters);
    static constexpr std::size_t block = 64; ///< elements; slices are cut between them
    static constexpr std::size_t block_bytes = block * (sizeof(A) + sizeof(P));
    static constexpr std::size_t fewest = 1U << 14U;  ///< elements that are worth a thread
    static constexpr std::size_t most_by_default = 8; ///< threads
    static constexpr std::size_t queue_capacity = 4;  ///< commands of a thread

    /// Slices of a bucket, or parts of them: a chunk, or what one thread updates of it.
    struct Part {
        List<Slice> slices{};
        List<std::size_t> number{}; ///< by slice: the number of the one of the device

        void add(Slice const& slice, std::size_t number_of_slice) {
            slices.push_back(slice);
            number.push_back(number_of_slice);
        }
        [[nodiscard]] std::size_t elements() const noexcept {
            std::size_t sum = 0;
            for (Slice const& slice : slices) {
                sum += slice.elements;
            }
            return sum;
        }
    };

    struct Stream;

    struct Chunk {
        std::size_t bucket = 0;
        Part whole{};       ///< empty once it was cut
        List<Part> parts{}; ///< by thread
        Stream* stream = nullptr;
        Group const* rows = nullptr;
        UpdateDecision const* decision = nullptr;
        List<MovedRange> gradients{};  ///< down
        List<MovedRange> parameters{}; ///< down and up
    };

    /// The queue of the updates, the other threads that run them, and all that they use. Waits for
    /// the queue when it is destroyed, also by an assignment to the owner, before anything goes.
    struct Stream {
        Buffer<std::byte> memory{};
        Buffer<float> scratch{}; ///< of an optimizer of whole parameters: equal parts, by thread
        List<Chunk> chunks{};    ///< in the order of a step
        List<std::unique_ptr<host::ThreadedQueue>> threads{};
        typename Backend::OwnedQueue own;
        Stream() = default;
        Stream(Stream const&) = delete;
        Stream& operator=(Stream const&) = delete;
        ~Stream() { drain<Backend>(Backend::handle(own)); }
    };

    /// Allocates the page-locked memory and lets the slices of the host point there.
    [[gnu::cold]] void lay_out(std::size_t most_rows) {
        auto& chunks = _stream->chunks;
        std::size_t const places =
            delays_update<Config> ? chunks.size() : smaller(depth, chunks.size());
        _updated.resize(places);
        std::vector<std::size_t> most(places); // elements, by place
        for (std::size_t index = 0; index < chunks.size(); ++index) {
            std::size_t& own = most[index % places];
            own = larger(own, chunks[index].whole.elements());
        }
        std::vector<std::size_t> place_begin{0}; // of each place; then that of the rows
        for (std::size_t const elements : most) {
            place_begin.push_back(place_begin.back() + gradient_bytes(elements)
                                  + (moves_parameters ? whole_lines(elements * sizeof(P)) : 0));
        }
        std::size_t const row_bytes = whole_lines(most_rows * sizeof(Group));
        _stream->memory =
            Buffer<std::byte>(Backend::staging_memory(),
                              place_begin.back() + row_bytes + whole_lines(sizeof(UpdateDecision)),
                              BufferKind::staging);
        std::byte* const memory = _stream->memory.data();
        _rows = memory + place_begin.back();
        _decision = _rows + row_bytes;
        for (std::size_t index = 0; index < chunks.size(); ++index) {
            Chunk& chunk = chunks[index];
            chunk.rows = reinterpret_cast<Group const*>(_rows);
            chunk.decision = reinterpret_cast<UpdateDecision const*>(_decision);
            std::byte* gradients = memory + place_begin[index % places];
            std::byte* parameters = gradients + gradient_bytes(most[index % places]);
            for (Slice& slice : chunk.whole.slices) {
                if constexpr (moves_gradients) {
                    redirect(slice.gradient, slice.elements, gradients, chunk.gradients);
                }
                if constexpr (moves_parameters) {
                    redirect_parameters<Types::master_form>(slice, parameters, chunk.parameters);
                }
            }
        }
    }

    /// Allocates the scratch memory of an optimizer of whole parameters, for each thread, and lets
    /// the slices of the host point there.
    [[gnu::cold]] void give_scratch(bool poison) {
        std::size_t most = 0;
        auto const for_slices = [&](auto const& visit) {
            for (Chunk& chunk : _stream->chunks) {
                for (std::size_t part = 0; part < chunk.parts.size(); ++part) {
                    for (Slice& slice : chunk.parts[part].slices) {
                        visit(part, slice);
                    }
                }
            }
        };
        for_slices([&](std::size_t /*thread*/, Slice const& slice) {
            std::size_t const rows = slice.rows;
            most = larger(most, Optimizer::scratch_floats(rows, rows == 0 ? slice.elements
                                                                          : slice.elements / rows));
        });
        _stream->scratch = Buffer<float>(Backend::staging_memory(),
                                         most * (_stream->threads.size() + 1), BufferKind::scratch);
        float* const scratch = _stream->scratch.data();
        for (std::size_t index = 0; poison && index < _stream->scratch.size(); ++index) {
            scratch[index] = std::numeric_limits<float>::quiet_NaN();
        }
        for_slices(
            [&](std::size_t thread, Slice& slice) { slice.scratch = scratch + thread * most; });
    }

    /// Of a place, for the gradients of so many elements.
    [[nodiscard]] static std::size_t gradient_bytes(std::size_t elements) noexcept {
        return moves_gradients ? whole_lines(elements * sizeof(A)) : 0;
    }

    [[nodiscard]] static std::size_t default_threads(std::size_t elements) noexcept {
        std::size_t const threads = smaller(most_by_default, elements / fewest);
        return larger<std::size_t>(
            1, smaller<std::size_t>(threads, std::thread::hardware_concurrency()));
    }

    /// Cuts slices into parts of `elements` elements; the last part has the rest. A part may exceed
    /// that by a block, or by a slice if the optimizer needs whole parameters.
    [[nodiscard, gnu::cold]] static List<Part> cut(Part const& whole, std::size_t elements) {
        List<Part> parts;
        std::size_t room = 0;
        for (std::size_t index = 0; index < whole.slices.size(); ++index) {
            Slice const& slice = whole.slices[index];
            for (std::size_t begin = 0; begin < slice.elements;) {
                if (room == 0) {
                    parts.push_back({});
                    room = elements;
                }
                std::size_t const whole_blocks = (room + block - 1) / block * block;
                std::size_t const left = slice.elements - begin;
                std::size_t const count =
                    Optimizer::whole_tensor ? left : smaller(whole_blocks, left);
                parts[parts.size() - 1].add(part_of(slice, begin, count), whole.number[index]);
                begin += count;
                room -= smaller(room, count);
            }
        }
        return parts;
    }

    /// Enqueues the copies down and the update. Commands enqueued before wait for the update that
    /// used the place last.
    void begin(std::size_t index) {
        Chunk& chunk = _stream->chunks[index];
        for (List<MovedRange> const* const ranges : {&chunk.gradients, &chunk.parameters}) {
            for (MovedRange const& range : *ranges) {
                Backend::copy_bytes(_queue, range.copy, range.own, range.bytes);
            }
        }
        Queue const host = Backend::handle(_stream->own);
        Backend::wait(host, Backend::record(_queue), Fence::chunk_read);
        Backend::run_on_host(host, &run, &chunk);
        _updated[index % _updated.size()] = Backend::record(host);
    }

    static void run(void* argument) {
        auto const& chunk = *static_cast<Chunk const*>(argument);
        auto const update = [&chunk](auto* queue, Part const& part) {
            HostBackend::update<Optimizer>(queue, as_span(part.slices), chunk.rows, chunk.decision);
        };
        std::size_t const parts = chunk.parts.size();
        for (std::size_t part = 1; part < parts; ++part) {
            update(chunk.stream->threads[part - 1].get(), chunk.parts[part]);
        }
        host::InlineQueue queue; // the command runs at once, with the default rounding
        update(&queue, chunk.parts[0]);
        for (std::size_t part = 1; part < parts; ++part) {
            chunk.stream->threads[part - 1]->record().synchronise();
        }
    }

    Queue _queue{};
    std::size_t _parameters = 0;
    std::size_t _rows_used = 0;
    std::byte* _rows = nullptr;
    std::byte* _decision = nullptr;
    std::size_t _next = 0;           ///< the next chunk of the step
    std::vector<Event> _updated{};   ///< by place
    std::unique_ptr<Stream> _stream; ///< null by default
};

} // namespace ZERO_NAMESPACE::detail
