#pragma once

#include "../../../backend/fence.hpp"
#include "../../../backend/timed_backend.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/chunk_places.hpp"
#include "../../../layout/chunk_plan.hpp"
#include "../../../layout/detail/count_blocks.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/placement.hpp"
#include "../../../tier/tier_error.hpp"
#include "../../stage_options.hpp"
#include "../memory/offloaded_states.hpp"
#include "master_weight_store.hpp"
#include "optimizer_state_store.hpp"
#include "optimizer_store.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns the states of a rank that are offloaded: the tier, the staging memory, and the
/// memory of the chunks that stay. Moves chunks through staging memory in the order of the update,
/// and parameters in the order of their gathers.
///
/// A chunk that is offloaded has a number n, and staging slot n mod depth for ever, so the tables
/// of slices point there (`ChunkPlaces`). A step reads chunk n, updates it, and writes it; reads of
/// the next chunks and writes of the ones before are under way meanwhile. Fences `chunk_read`,
/// `chunk_updated` and `chunk_written` order them. A gather reads parameters to slots of its own,
/// and copies them to the lease; `chunk_copied` orders the next read to the slot.
template <class Config>
class OffloadedStates<Config, true> {
public:
    using Failure = TierError; ///< of a request that failed

    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;
    using Tier = typename Config::Offload::Tier;

    /// Whether parameters are offloaded, which gathers read.
    static constexpr bool has_parameters = Config::Offload::offloads(BufferKind::parameters);

    /// @param layout must outlive this object, as `memory` must
    /// @param communicator releases the other ranks if the tier cannot be made
    /// @throws InvalidArgument for an option, before anything is allocated; TierError
    [[gnu::cold]] OffloadedStates(FlatLayout const& layout,
                                  typename Config::Communicator& communicator, StageRow const& row,
                                  StageOptions<Config> const& options, MemoryResource& memory)
        : _layout(&layout), _rank(static_cast<std::size_t>(communicator.rank())) {
        auto const& chosen = options.offload;
        std::size_t const rank = _rank;
        auto const refuse_if = [rank](bool is_wrong, char const* why) {
            if (is_wrong) throw_error<InvalidArgument>({"zero: rank ", rank, why});
        };
        refuse_if(chosen.depth == 0,
                  ": offload.depth is 0; it is the number of chunks in staging memory, at least 1 "
                  "and usually 3: one is read, one updated, one written.");
        refuse_if(options.update_tile_elements != 0,
                  ": update_tile_elements is set, but Offload updates chunk by chunk; leave it "
                  "out, and set offload.chunk_bytes.");
        std::vector<ChunkArrays> arrays;
        for_types([&]<class Types>() { arrays.push_back(arrays_of<Types>()); });
        auto const add = [&](std::size_t bucket, std::vector<Piece>& list) {
            for_updated_slices<Config>(layout, bucket, rank, row,
                                       [&](Piece const& piece) { list.push_back(piece); });
        };
        _places = ChunkPlaces(layout, as_span(arrays), {chosen.chunk_bytes, chosen.ratio},
                              !Config::Optimizer::whole_tensor, add);
        std::vector<std::uint64_t> const requests = _places.requests();
        try {
            _tier = std::make_unique<Tier>(chosen, requests, text({"rank ", rank}), memory);
        } catch (TierError const& error) { // the disk of this rank alone may be full
            communicator.abort(first_line(error.what()));
            throw;
        }
        _tier->describe_by(
            [](void const* states, std::size_t request) {
                return static_cast<OffloadedStates const*>(states)->name_of_request(request);
            },
            this);
        std::vector<std::size_t> staging;
        for (std::size_t request = 0; request < requests.size(); ++request) {
            staging.push_back(_tier->staging_bytes(request));
        }
        _places.lay_out(as_span(staging), _tier->alignment(), chosen.depth);
        allocate(memory, options.poison);
    }

    OffloadedStates(OffloadedStates const&) = delete;
    OffloadedStates& operator=(OffloadedStates const&) = delete;
    ~OffloadedStates() = default;

    [[nodiscard]] ChunkPlan const& plan() const noexcept { return _places.plan(); }

    /// @brief Names the layout anew, after it was moved.
    void use(FlatLayout const& layout) noexcept { _layout = &layout; }

    /// @brief Returns the address of the slice that begins at element `index` of a bucket, in
    /// staging memory or where it stays.
    /// @param array number of the array among those of its kind
    [[nodiscard]] std::byte* address(std::size_t bucket, std::size_t index, BufferKind kind,
                                     std::size_t array) const {
        auto const place = _places.place(bucket, index, kind, array);
        return (place.is_staged ? _staging_begin : _resident[place.kind].data()) + place.offset;
    }

    /// @brief Begins the reads of the first chunks of an update. A no-op if they were begun.
    void begin() {
        release();
        while (_begun < smaller(_slots.size(), _places.updated_numbers())) {
            begin_read(_begun++);
        }
    }

    /// @brief Makes commands on a queue wait for all writes, which read the decision of their step.
    void wait_for_writes(Queue queue) {
        for (Slot const& slot : _slots) {
            for (Event const& written : slot.written) {
                Backend::wait(queue, written, Fence::chunk_written);
            }
        }
    }

    /// @brief Calls `enqueue()`, which enqueues the update of a chunk. Call it for each chunk in
    /// order, after `begin`.
    /// @param is_left_out read before the write: whether the update changed nothing
    template <class Enqueue>
    void update(std::size_t chunk, Queue queue, Enqueue const& enqueue, bool const* is_left_out) {
        if (!is_offloaded(chunk)) {
            enqueue();
            return;
        }
        std::size_t const number = _places.number(chunk);
        for (Event const& read : slot_of(number).read) {
            wait_for_read(queue, read);
        }
        enqueue();
        write(number, queue, is_left_out);
        std::size_t const numbers = _places.updated_numbers();
        if (_begun < numbers) {
            begin_read(_begun++);
        }
        _begun = number + 1 == numbers ? 0 : _begun;
    }

    /// @brief Enqueues the copy of this rank's parameters of a bucket to their places in it: reads
    /// of later chunks run beside copies of earlier ones.
    /// @param bucket_begin the memory of the bucket, for commands on `queue`
    void read_parameters(std::size_t bucket, Queue queue, std::byte* bucket_begin,
                         std::size_t element_bytes) {
        release();
        for_chunks_of(bucket, [&](std::size_t chunk) {
            if (is_offloaded(chunk)) {
                std::size_t const number = _places.number(chunk);
                std::size_t const request = _places.request(number, 1);
                std::size_t const index = _gathers++ % _gather_slots.size();
                GatherSlot& slot = _gather_slots[index];
                Queue const reader = _tier->reading_queue(request);
                wait_for_writes(reader);
                Backend::wait(reader, slot.copied, Fence::chunk_copied);
                std::byte* const memory = gather_memory(index);
                Event read{};
                {
                    TransferSpan<Backend> const span(reader, "read of chunk", number);
                    read = _tier->read(request, memory);
                }
                wait_for_read(queue, read);
                copy_parameters(chunk, memory, bucket_begin, element_bytes, queue);
                slot.copied = Backend::record(queue);
            } else {
                copy_parameters(chunk, nullptr, bucket_begin, element_bytes, queue);
            }
        });
    }

    /// @brief Calls `visit(Piece, T* memory)` for each slice of this rank in a bucket, which writes
    /// the initial values of the parameters. Waits.
    template <class T, class Visit>
    [[gnu::cold]] void fill_parameters(std::size_t bucket, Visit const& visit) {
        for_chunks_of(bucket, [&](std::size_t chunk) {
            std::size_t const index = _gathers++ % larger<std::size_t>(_gather_slots.size(), 1);
            std::byte* memory = nullptr;
            if (is_offloaded(chunk)) {
                memory = gather_memory(index);
                _gather_slots[index].copied.synchronise();
            }
            for_parameters(chunk, memory, sizeof(T), [&](Piece const& piece, std::byte* values) {
                visit(piece, reinterpret_cast<T*>(values));
            });
            if (is_offloaded(chunk)) {
                _gather_slots[index].copied =
                    _tier->write(_places.request(_places.number(chunk), 1), memory);
            }
        });
        for (GatherSlot const& slot : _gather_slots) {
            slot.copied.synchronise();
        }
        _tier->rethrow_failure();
    }

    /// @brief Calls `visit(Piece, void*)` with each slice of this rank's parameters in a bucket and
    /// its address between two steps (`held_address`).
    template <class Visit>
    [[gnu::cold]] void for_held_parameters(std::size_t bucket, Visit const& visit) const {
        for_chunks_of(bucket, [&](std::size_t chunk) {
            for (Piece const& piece : plan().slices(plan().chunks()[chunk])) {
                visit(piece, held_address(chunk, address(bucket, piece.bucket_begin,
                                                         BufferKind::parameters, 0)));
            }
        });
    }

    /// @brief Calls `visit(chunk)` for each chunk of a parameter type that is updated while it is
    /// in memory. The host may use it, and `visit` may enqueue commands on `queue` that do. Waits.
    /// @param is_new whether the values of all but parameters need not be read
    template <class Visit>
    [[gnu::cold]] void visit(std::size_t type, Queue queue, bool is_new, Visit const& visit) {
        require_no_visit();
        VisitScope const scope(_is_visited);
        release();
        settle();
        for (std::size_t chunk = 0; chunk < plan().updated_chunks(); ++chunk) {
            if (_places.type(chunk) != type) {
                continue;
            }
            if (!is_offloaded(chunk)) {
                visit(chunk);
                continue;
            }
            std::size_t const number = _places.number(chunk);
            begin_read(number, is_new);
            wait_for(slot_of(number));
            _tier->rethrow_failure();
            visit(chunk);
            write(number, queue, nullptr);
        }
        settle();
        _tier->rethrow_failure();
    }

    /// @brief Returns the address that stands for memory of a chunk between two steps: its own if
    /// it stays, otherwise one that only `memory_at` understands.
    /// @param data its address in staging memory, or where it stays
    [[gnu::cold]] [[nodiscard]] void* held_address(std::size_t chunk, void* data) const {
        if (!is_offloaded(chunk)) {
            return data;
        }
        std::size_t const number = _places.number(chunk);
        auto const at = reinterpret_cast<std::uintptr_t>(data);
        for (std::size_t part = _places.parts(); part-- > 0;) {
            auto const first = reinterpret_cast<std::uintptr_t>(memory_of(number, part));
            if (at >= first && at < first + _places.part_bytes(number, part)) {
                return _tier->address(_places.request(number, part)) + (at - first);
            }
        }
        return data; // other kinds stay
    }

    /// @brief Returns the memory that an address of `held_address` stands for, up to the end of its
    /// slice. Other addresses stand for themselves. Between two steps; waits. The memory may be
    /// used until the next call of any function that moves chunks.
    /// @param is_written whether the caller writes to it
    [[gnu::cold]] [[nodiscard]] std::byte* memory_at(void const* address, bool is_written) {
        std::size_t const request = _tier->chunk_at(address);
        if (request == _places.parts() * _places.numbers()) {
            return static_cast<std::byte*>(const_cast<void*>(address));
        }
        std::size_t const number = request % _places.numbers();
        require_no_visit();
        if (!_is_held) {
            settle();
            _is_held = true;
        }
        Slot& slot = slot_of(number);
        if (slot.held != number + 1) {
            write_held(slot);
            slot.held = 0;
            begin_read(number);
            wait_for(slot);
            _tier->rethrow_failure();
            slot.held = number + 1;
        }
        slot.is_written = slot.is_written || is_written;
        return memory_of(number, request / _places.numbers())
               + (static_cast<std::byte const*>(address) - _tier->address(request));
    }

    /// @brief Copies bytes of one slice, from or to an address of `held_address`. Waits.
    [[gnu::cold]] void copy(void* to, void const* from, std::size_t bytes) {
        std::byte const* const source = memory_at(from, false);
        std::copy_n(source, bytes, memory_at(to, true));
    }

    /// @brief Waits for all requests. Reads that were begun are forgotten.
    void settle() const noexcept {
        for (Slot const& slot : _slots) {
            wait_for(slot);
        }
        for (GatherSlot const& slot : _gather_slots) {
            slot.copied.synchronise();
        }
        _begun = 0;
    }

    /// @brief Throws the first failure of a request, if there is one.
    void rethrow_failure() const { _tier->rethrow_failure(); }

    /// @brief Sets the rows of a memory plan that are not those of memory alone.
    [[gnu::cold]] void add_to(MemoryPlan& plan) const {
        _places.add_to(plan);
        plan[BufferKind::commands].content_bytes += _tier->command_bytes();
    }

private:
    static constexpr std::size_t parts = has_parameters ? 2 : 1; ///< `ChunkPlaces::parts`

    /// Staging memory of one chunk at a time.
    struct Slot {
        std::array<Event, parts> read{};    ///< the last reads to it
        std::array<Event, parts> written{}; ///< the last writes from it
        /// Between two steps: the number of the chunk that it holds, from 1, and whether that was
        /// changed.
        std::size_t held = 0;
        bool is_written = false;
    };

    /// Staging memory of the parameters of one chunk at a time.
    struct GatherSlot {
        Event copied{}; ///< the last use of it
    };

    template <class Visitor>
    static void for_types(Visitor const& visit) {
        [&]<std::size_t... Type>(std::index_sequence<Type...>) {
            (visit.template operator()<typename Config::template TypesAt<Type>>(), ...);
        }(std::make_index_sequence<Config::types>());
    }

    /// The arrays of a parameter type that are offloaded.
    template <class Types>
    [[nodiscard]] static ChunkArrays arrays_of() {
        using Masters = MasterWeightStore<Config, Types>;
        using States = OptimizerStateStore<Config>;
        ChunkArrays arrays;
        for (std::size_t kind = 0; kind < ChunkArrays::kinds.size(); ++kind) {
            BufferKind const name = ChunkArrays::kinds[kind];
            auto const add = [&](std::size_t count, std::size_t bytes, std::size_t bytes_of_block) {
                for (std::size_t array = 0; bytes + bytes_of_block != 0 && array < count; ++array) {
                    arrays.of[kind].push_back({bytes, bytes_of_block});
                }
            };
            if (!Config::Offload::offloads(name)) {
                continue;
            }
            if (name == BufferKind::parameters) {
                add(1, sizeof(typename Types::Parameter), 0);
            } else if (name == BufferKind::master_weights) {
                add(1, Masters::bytes, 0);
                add(1, 0, Masters::bytes_per_block);
            } else {
                constexpr std::size_t count = States::states;
                add(count, States::bytes / larger<std::size_t>(count, 1), 0);
                add(count, 0, States::bytes_per_block / larger<std::size_t>(count, 1));
            }
        }
        return arrays;
    }

    [[gnu::cold]] void allocate(MemoryResource& memory, bool poison) {
        _slots.resize(_places.slots());
        _gather_slots.resize(_places.gather_slots());
        std::size_t room = _places.staging_bytes();
        _staging = Buffer<std::byte>(memory, room, BufferKind::staging);
        std::fill_n(_staging.data(), room, std::byte(poison ? 0xff : 0));
        for (std::size_t kind = 0; kind < ChunkArrays::kinds.size(); ++kind) {
            auto& buffer = _resident[kind];
            buffer =
                Buffer<std::byte>(memory, _places.resident(kind).bytes(), ChunkArrays::kinds[kind]);
            std::fill_n(buffer.data(), buffer.size(), std::byte(poison ? 0xff : 0));
        }
        if (room != 0) {
            void* begin = _staging.data();
            std::size_t const needed = _places.gather_slot_begin(_gather_slots.size());
            _staging_begin =
                static_cast<std::byte*>(std::align(_places.alignment(), needed, begin, room));
        }
    }

    [[nodiscard]] bool is_offloaded(std::size_t chunk) const noexcept {
        return plan().chunks()[chunk].is_offloaded;
    }

    template <class Visit>
    void for_chunks_of(std::size_t bucket, Visit const& visit) const {
        for (std::size_t chunk = plan().first_chunk(bucket); chunk < plan().end_chunk(bucket);
             ++chunk) {
            visit(chunk);
        }
    }

    /// Calls `visit(Piece, std::byte*)` for the parameters of each slice of a chunk.
    /// @param memory of the part that holds them; not used if the chunk stays
    template <class Visit>
    void for_parameters(std::size_t chunk, std::byte* memory, std::size_t element_bytes,
                        Visit const& visit) const {
        auto const& own = plan().chunks()[chunk];
        auto const slices = plan().slices(own);
        if (!own.is_offloaded && !slices.empty()) {
            memory = address(own.bucket, slices.front().bucket_begin, BufferKind::parameters, 0);
        }
        for (Piece const& piece : slices) {
            visit(piece, memory);
            memory += static_cast<std::size_t>(blocks_of(piece.elements) * block_elements
                                               * element_bytes);
        }
    }

    void copy_parameters(std::size_t chunk, std::byte* memory, std::byte* bucket_begin,
                         std::size_t element_bytes, Queue queue) const {
        for_parameters(chunk, memory, element_bytes, [&](Piece const& piece, std::byte* values) {
            Backend::copy_bytes(queue, bucket_begin + piece.bucket_begin * element_bytes, values,
                                piece.elements * element_bytes);
        });
    }

    [[nodiscard]] Slot& slot_of(std::size_t number) noexcept {
        return _slots[number % _slots.size()];
    }

    [[nodiscard]] std::byte* memory_of(std::size_t number, std::size_t part) const noexcept {
        return _staging_begin + _places.slot_begin(number) + _places.part_begin(number, part);
    }

    [[nodiscard]] std::byte* gather_memory(std::size_t slot) const noexcept {
        return _staging_begin + _places.gather_slot_begin(slot);
    }

    static void wait_for(Slot const& slot) noexcept {
        for (std::size_t part = 0; part < parts; ++part) {
            slot.read[part].synchronise();
            slot.written[part].synchronise();
        }
    }

    /// What was not read must not be used, so its failure is one of the queue.
    void wait_for_read(Queue queue, Event const& read) const {
        Backend::wait(queue, read, Fence::chunk_read);
        Backend::run(queue, [tier = _tier.get()] { tier->rethrow_failure(); });
    }

    struct VisitScope {
        explicit VisitScope(bool& is_visited) noexcept : flag(is_visited) { flag = true; }
        VisitScope(VisitScope const&) = delete;
        VisitScope& operator=(VisitScope const&) = delete;
        ~VisitScope() { flag = false; }
        bool& flag;
    };

    /// A slot holds one chunk, and a visitor uses it.
    void require_no_visit() const {
        if (_is_visited) {
            throw_error<OutOfOrder>(
                {"zero: rank ", _rank,
                 ": offloaded states are read or written while for_each_owned_slice() or an update "
                 "of the caller visits them; do it before or after the visit, or take the values "
                 "from the slice that is visited."});
        }
    }

    /// Writes back what was changed between two steps.
    void release() {
        if (_is_held) {
            for (Slot& slot : _slots) {
                write_held(slot);
                slot.held = 0;
            }
            _is_held = false;
        }
    }

    void write_held(Slot& slot) {
        if (std::exchange(slot.is_written, false)) {
            for_parts(slot.held - 1, [&](std::size_t part, std::size_t request) {
                slot.written[part] = _tier->write(request, memory_of(slot.held - 1, part));
            });
        }
    }

    /// Calls `visit(part, request)` for the parts of a chunk. That of a frozen bucket has no part
    /// that only the update uses.
    template <class Visit>
    void for_parts(std::size_t number, Visit const& visit) const {
        for (std::size_t part = 0; part < parts; ++part) {
            if (_places.part_bytes(number, part) != 0) {
                visit(part, _places.request(number, part));
            }
        }
    }

    /// @param is_new whether only parameters are needed
    void begin_read(std::size_t number, bool is_new = false) {
        Slot& slot = slot_of(number);
        for_parts(number, [&](std::size_t part, std::size_t request) {
            if (is_new && part == 0) {
                return;
            }
            Queue const queue = _tier->reading_queue(request);
            for (Event const& written : slot.written) {
                Backend::wait(queue, written, Fence::chunk_written);
            }
            TransferSpan<Backend> const span(queue, "read of chunk", number);
            slot.read[part] = _tier->read(request, memory_of(number, part));
        });
    }

    void write(std::size_t number, Queue queue, bool const* is_left_out) {
        Event const updated = Backend::record(queue);
        for_parts(number, [&](std::size_t part, std::size_t request) {
            Queue const own = _tier->writing_queue(request);
            Backend::wait(own, updated, Fence::chunk_updated);
            TransferSpan<Backend> const span(own, "write of chunk", number);
            slot_of(number).written[part] =
                _tier->write(request, memory_of(number, part), is_left_out);
        });
    }

    /// "master weights and optimizer state of 'w', elements 0 to 99, and 3 more slices"
    [[gnu::cold]] [[nodiscard]] std::string name_of_request(std::size_t request) const {
        std::size_t const numbers = _places.numbers();
        bool const is_parameters = request >= numbers;
        std::string kinds = is_parameters ? name_of(BufferKind::parameters) : "";
        for (BufferKind const kind : Config::Offload::kinds) {
            if (!is_parameters && kind != BufferKind::parameters) {
                kinds += text({kinds.empty() ? "" : " and ", name_of(kind)});
            }
        }
        auto const slices = plan().slices(
            plan().chunks()[_places.chunk(request % larger<std::size_t>(numbers, 1))]);
        Piece const& first = slices.front();
        std::string const more =
            slices.size() == 1 ? "" : text({", and ", slices.size() - 1, " more slices"});
        return text({kinds, " of '", _layout->parameter(first.parameter).name, "', elements ",
                     first.parameter_begin, " to ", first.parameter_begin + first.elements - 1,
                     more});
    }

    FlatLayout const* _layout;
    std::size_t _rank;
    ChunkPlaces _places;
    std::vector<Slot> _slots;
    std::vector<GatherSlot> _gather_slots;
    Buffer<std::byte> _staging;
    std::array<Buffer<std::byte>, ChunkArrays::kinds.size()> _resident; ///< what stays, by kind
    std::byte* _staging_begin = nullptr;
    mutable std::size_t _begun = 0; ///< chunks of this update whose read was begun
    std::size_t _gathers = 0;       ///< chunks that were gathered or filled so far
    bool _is_visited = false;       ///< whether `visit` runs
    bool _is_held = false;          ///< whether staging memory holds chunks between two steps
    std::unique_ptr<Tier> _tier;    ///< destroyed first: its requests use the memory
};

} // namespace ZERO_NAMESPACE::detail
