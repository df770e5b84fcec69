#pragma once

#include "../../../comm/communicator.hpp"
#include "../../../comm/detail/optional_operations.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/piece.hpp"
#include "../../../policy/detail/state_name.hpp"
#include "../../weights.hpp"
#include "../common/drain.hpp"
#include "../common/gather_on_host.hpp"
#include "state_access.hpp"
#include "state_table.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

inline void multiply(std::vector<float>& values, float factor) noexcept {
    for (float& value : values) {
        value *= factor;
    }
}

inline void divide(std::vector<float>& values, float divisor) noexcept {
    for (float& value : values) {
        value /= divisor;
    }
}

/// @brief Divides values by the factor that `stored` was multiplied by. An unchanged value gets the
/// stored bits, because the division may round or meet a product that overflowed.
inline void divide_changed(std::vector<float>& values, float factor,
                           std::vector<float> const& stored) noexcept {
    for (std::size_t i = 0; i < values.size(); ++i) {
        bool const is_unchanged = std::bit_cast<std::uint32_t>(values[i])
                                  == std::bit_cast<std::uint32_t>(stored[i] * factor);
        values[i] = is_unchanged ? stored[i] : values[i] / factor;
    }
}

/// @brief Moves values of one parameter between the training state, the host and the other ranks.
/// `TrainingState` uses it.
template <class Config>
class StateTransfer {
public:
    /// Accepts all values.
    struct NoCheck {
        void operator()(std::span<float const>) const noexcept {}
    };

    using Access = StateAccess<Config>;
    using Backend = typename Access::Backend;

    /// @param access must outlive this object, or move with it
    explicit StateTransfer(Access const& access)
        : _access(access), _number(access.layout().number()),
          _table(std::make_shared<StateTable const>(access.layout(), access.arrays())),
          _gradients(access.layout(), access.gradients()) {}

    /// @brief The same for everything but gradients. O(1).
    /// @param table of `access.arrays()`
    StateTransfer(Access const& access, std::shared_ptr<StateTable const> table)
        : _access(access), _number(access.layout().number()), _table(std::move(table)),
          _gradients(access.layout(), {}) {}

    [[nodiscard]] List<HeldArray> const& arrays() const noexcept { return _table->arrays(); }

    /// @brief Reads a range that this rank holds.
    void load(ArrayKind kind, std::size_t state, std::size_t parameter, Range range,
              float* out) const {
        auto const copy = [&](void* to, void const* from, std::size_t bytes) {
            _access.copy(to, from, bytes);
        };
        table(kind).load(kind, state, parameter, range, copy, out);
    }

    /// @brief Writes the part of a range that this rank holds.
    void store(ArrayKind kind, std::size_t state, std::size_t parameter, std::size_t begin,
               std::span<float const> values) const {
        auto const copy = [&](void* to, void const* from, std::size_t bytes) {
            _access.copy(to, from, bytes);
        };
        table(kind).store(kind, state, parameter, {begin, begin + values.size()}, copy,
                          values.data());
    }

    /// @brief Returns the slices that this rank holds. Waits.
    [[nodiscard]] std::vector<LocalValues> local(ArrayKind kind, std::size_t state,
                                                 std::size_t parameter) {
        require_current();
        _access.wait_to_read();
        std::vector<LocalValues> slices;
        for (Range const& range : table(kind).held(kind, state, parameter)) {
            slices.push_back({range.begin, std::vector<float>(range.size())});
            _access.locally(
                [&] { load(kind, state, parameter, range, slices.back().values.data()); });
        }
        return slices;
    }

    /// @brief Replaces one slice that this rank holds. @throws InvalidArgument for any other range
    void set_local(ArrayKind kind, std::size_t state, std::size_t parameter, std::size_t begin,
                   std::span<float const> values) {
        require_current();
        bool is_slice = false;
        for (Range const& range : table(kind).held(kind, state, parameter)) {
            is_slice = is_slice || (range.begin == begin && range.size() == values.size());
        }
        if (!is_slice) {
            throw_error<InvalidArgument>(
                {"zero: this rank holds no slice of ", values.size(), " elements at ", begin,
                 " of parameter '", _access.layout().parameter(parameter).name, "' (rank ",
                 _access.rank(), "); pass one that the local getter returned."});
        }
        _access.wait_to_read();
        _access.locally([&] { store(kind, state, parameter, begin, values); });
    }

    /// @brief Returns the values of a whole parameter: the extents of all ranks, in every stage.
    /// Collective.
    [[nodiscard]] std::vector<float> gather(ArrayKind kind, std::size_t state,
                                            std::size_t parameter) {
        require_current();
        if (kind != ArrayKind::gradient) {
            _access.require_idle("reading a full state", StateUse::read_all);
            _access.wait_to_read();
        }
        FlatLayout const& layout = _access.layout();
        std::vector<float> values(layout.parameter(parameter).elements);
        if (layout.parameter_pieces(parameter).empty()) { // frozen in an adopted block: replicated
            load(kind, state, parameter, {0, values.size()}, values.data());
        }
        std::string const what = tag_text(kind, state, "", "values of parameter");
        std::string const name = name_of_array(kind, state);
        CollectiveTag const tag = engine_tag(
            layout, what.c_str(), parameter, layout.parameter(parameter).name.c_str(), name.c_str(),
            kind == ArrayKind::gradient ? CollectivePurpose::reduce : CollectivePurpose::other);
        _access.guard([&] {
            compare_untagged(_access.communicator(), _access.queue(), _access.memory(), tag);
            for (PiecePosition const& at : layout.parameter_pieces(parameter)) {
                Piece const& piece = layout.piece(at);
                std::vector<std::size_t> cuts;
                Cuts const bucket_cuts = layout.cuts(at.bucket);
                for (std::size_t cut = 0; cut < bucket_cuts.size(); ++cut) {
                    std::size_t const end =
                        larger(bucket_cuts[cut], piece.bucket_begin) - piece.bucket_begin;
                    cuts.push_back(smaller(end, piece.elements));
                }
                float* const out = values.data() + piece.parameter_begin;
                std::size_t const rank = _access.shard_rank();
                std::size_t const own = cuts[rank];
                load(kind, state, parameter,
                     {piece.parameter_begin + own, piece.parameter_begin + cuts[rank + 1]},
                     out + own);
                exchange(out, piece.elements, [&](float* shared) {
                    shard_of(_access.communicator())
                        .all_gather(static_cast<float const*>(shared + own), shared, cuts,
                                    _access.queue(), tag);
                });
            }
        });
        return values;
    }

    /// @brief Divides the values of one rank, `root`, and stores them on every rank that holds
    /// them. Collective.
    /// @param form in which the caller gives the values; "" where there is only one
    /// @param check called with the values of `root` on every rank; what it throws refuses them
    /// @throws InvalidArgument on every rank for a wrong number of values, or another parameter;
    /// CollectiveMismatch if ranks set another array, or in another form
    template <class Check = NoCheck>
    void broadcast(ArrayKind kind, std::size_t state, std::size_t parameter,
                   std::span<float const> values, float divisor, std::size_t root = 0,
                   char const* form = "", Check const& check = {}) {
        require_current();
        FlatLayout const& layout = _access.layout();
        auto const& spec = layout.parameter(parameter);
        std::string const to_set = tag_text(kind, state, form, "values to set");
        std::string const what = tag_text(kind, state, form, "values of parameter");
        std::string const name = name_of_array(kind, state);
        std::vector<std::uint64_t> sizes;
        CollectiveTag const announcement = engine_tag(layout, to_set.c_str(), 0, "", name.c_str());
        _access.guard([&] {
            sizes = gather_on_host(_access.communicator(), _access.queue(), _access.memory(),
                                   {parameter, values.size()}, announcement);
        });
        require_equal_calls(parameter, sizes, root);
        std::vector<float> shared(spec.elements);
        if (_access.rank() == root) {
            shared.assign(values.begin(), values.end());
            divide(shared, divisor);
        }
        _access.guard([&] {
            if (!shared.empty()) {
                exchange(shared.data(), shared.size(), [&](float* all) {
                    _access.communicator().broadcast(all, shared.size(), static_cast<int>(root),
                                                     _access.queue(),
                                                     engine_tag(layout, what.c_str(), parameter,
                                                                spec.name.c_str(), name.c_str()));
                });
            }
        });
        check(std::span<float const>(shared.data(), shared.size()));
        _access.guard([&] { store(kind, state, parameter, 0, {shared.data(), shared.size()}); });
    }

    /// @throws OutOfOrder if the layout is another one than at construction
    void require_current() const {
        if (_access.layout().number() != _number) {
            throw_error<OutOfOrder>({"zero: the buckets were made again after this TrainingState "
                                     "was made; make another one (rank ",
                                     _access.rank(), ")."});
        }
    }

private:
    /// Returns the text of a tag. The array comes first: transports compare only the beginning.
    [[nodiscard]] static std::string tag_text(ArrayKind kind, std::size_t state, char const* form,
                                              char const* what) {
        switch (kind) {
        case ArrayKind::state: return text({"state ", state, ": ", what});
        case ArrayKind::gradient: return text({form, "gradient: ", what});
        default: return what;
        }
    }

    /// Returns the quoted name of an optimizer's state; empty for other arrays.
    [[nodiscard]] static std::string name_of_array(ArrayKind kind, std::size_t state) {
        return kind == ArrayKind::state
                   ? text({'\'', state_name<typename Config::Optimizer>(state), '\''})
                   : std::string();
    }

    /// Compares the parameter of all ranks and the numbers of values that they set.
    void require_equal_calls(std::size_t parameter, std::vector<std::uint64_t> const& sizes,
                             std::size_t root) const {
        auto const& spec = _access.layout().parameter(parameter);
        for (std::size_t rank = 0; 2 * rank < sizes.size(); ++rank) {
            if (sizes[2 * rank] != parameter) {
                throw_error<InvalidArgument>(
                    {"zero: rank ", rank, " sets parameter number ", sizes[2 * rank], ", rank ",
                     _access.rank(), " sets '", spec.name, "' (number ", parameter,
                     "); pass the same parameter on every rank. Nothing was changed."});
            }
        }
        for (std::size_t rank = 0; 2 * rank < sizes.size(); ++rank) {
            bool const is_absent = rank != root && sizes[2 * rank + 1] == 0;
            if (!is_absent && sizes[2 * rank + 1] != spec.elements) {
                throw_error<InvalidArgument>(
                    {"zero: rank ", rank, " sets ", sizes[2 * rank + 1], " values of parameter '",
                     spec.name, "' (number ", parameter, "), which has ", spec.elements,
                     " elements; pass all values on rank ", root,
                     ", and as many or none on the others. Nothing was changed."});
            }
        }
    }

    /// Runs a collective on host values through memory of the backend. Waits.
    void exchange(float* values, std::size_t elements, FunctionRef<float*> collective) {
        Buffer<float> shared(_access.memory(), elements, BufferKind::control);
        Drain<Backend> const drain(_access.queue()); // commands use both
        std::size_t const bytes = elements * sizeof(float);
        Backend::copy_bytes(_access.queue(), shared.data(), values, bytes);
        collective(shared.data());
        wait_for_collectives(_access.communicator(), _access.queue()); // see `through_backend`
        Backend::copy_bytes(_access.queue(), values, shared.data(), bytes);
        wait_for_collectives(_access.communicator(), _access.queue());
    }

    [[nodiscard]] StateTable const& table(ArrayKind kind) const noexcept {
        return kind == ArrayKind::gradient ? _gradients : *_table;
    }

    Access _access;        // a reference to the engine
    std::uint64_t _number; ///< of the layout that the tables are of
    std::shared_ptr<StateTable const> _table;
    StateTable _gradients;
};

} // namespace ZERO_NAMESPACE::detail
