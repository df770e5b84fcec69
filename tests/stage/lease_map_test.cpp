#include "support/catch.hpp"

#include <zero/stage/detail/memory/bucket_pool.hpp>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>

// Random calls of a LeaseMap against a model that keeps one entry per 64 elements.

namespace zero::test::lease_map_test {

namespace {

using zero::detail::LeaseChoice;
using zero::detail::LeaseMap;
using Uses = std::set<std::size_t>; ///< numbered from 0

constexpr std::size_t unit = 64;
constexpr std::size_t none = static_cast<std::size_t>(-1);

struct Model {
    explicit Model(LeasePlan const& planned)
        : plan(planned), holder(planned.elements / unit, none), user(planned.elements / unit, none),
          claimed(planned.places.size()), last_use(planned.places.size(), none) {
        std::size_t spare = planned.planned_elements();
        cuts.insert({0, spare});
        for (Range const& place : planned.places) {
            cuts.insert(place.begin);
            cuts.insert(place.end);
        }
        for (std::size_t const elements : planned.spares) {
            cuts.insert(spare += elements);
        }
    }

    [[nodiscard]] bool is_free(Range range) const {
        for (std::size_t at = range.begin / unit; at < range.end / unit; ++at) {
            if (holder[at] != none) {
                return false;
            }
        }
        return true;
    }

    /// The elements of the smallest free part from `begin` on that holds `size` elements, or 0.
    [[nodiscard]] std::size_t best_fit(std::size_t begin, std::size_t size) const {
        std::size_t best = 0;
        for (auto cut = cuts.lower_bound(begin); cut != cuts.end(); ++cut) {
            auto const end = cuts.lower_bound(*cut + size);
            if (end != cuts.end() && is_free({*cut, *end}) && (best == 0 || *end - *cut < best)) {
                best = *end - *cut;
            }
        }
        return best;
    }

    /// The elements that `claim` must take where the place of the bucket is not free, or 0.
    [[nodiscard]] std::size_t elsewhere(std::size_t bucket, LeaseChoice choice) const {
        std::size_t const size = plan.places[bucket].size();
        std::size_t const spare =
            choice == LeaseChoice::own_place ? 0 : best_fit(plan.planned_elements(), size);
        return spare == 0 && choice == LeaseChoice::any_place ? best_fit(0, size) : spare;
    }

    /// Whether `claim` must succeed.
    [[nodiscard]] bool has_room(std::size_t bucket, LeaseChoice choice) const {
        return !claimed[bucket].is_empty() || is_free(plan.places[bucket])
               || elsewhere(bucket, choice) != 0;
    }

    void set_holder(Range range, std::size_t bucket) {
        std::fill(holder.begin() + static_cast<std::ptrdiff_t>(range.begin / unit),
                  holder.begin() + static_cast<std::ptrdiff_t>(range.end / unit), bucket);
    }

    LeasePlan plan;
    std::vector<std::size_t> holder; ///< per 64 elements: the bucket that claims them
    std::vector<std::size_t> user;   ///< per 64 elements: their last use
    std::vector<Range> claimed;      ///< claimed range of each bucket
    std::set<std::size_t> cuts;      ///< where places begin or end

    std::vector<Uses> before;          ///< by use: the uses that it waits for, directly or not
    std::vector<std::size_t> last_use; ///< last use of each bucket
};

LeasePlan random_plan(std::mt19937_64& random) {
    LeasePlan plan;
    std::size_t planned = 0;
    for (std::size_t count = 1 + random() % 10; count-- > 0;) {
        std::size_t const begin = random() % 12 * unit;
        plan.places.push_back({begin, begin + random() % 6 * unit});
        planned = std::max(planned, plan.places.back().end);
    }
    plan.elements = planned;
    for (std::size_t count = random() % 3; count-- > 0;) {
        plan.spares.push_back(random() % 6 * unit);
        plan.elements += plan.spares.back();
    }
    return plan;
}

/// Compares a map with the model over many calls.
class Comparison {
public:
    explicit Comparison(std::uint64_t seed)
        : _random(seed), _plan(random_plan(_random)), _map(_plan), _model(_plan) {}

    std::string run() {
        for (int call = 0; call < 300 && _problem.empty(); ++call) {
            std::size_t const bucket = _random() % _plan.places.size();
            switch (_random() % 3) {
            case 0: claim(bucket); break;
            case 1: use(bucket); break;
            default: free(bucket); break;
            }
        }
        return _problem;
    }

    [[nodiscard]] std::size_t refused() const { return _refused; }
    [[nodiscard]] std::size_t moved() const { return _moved; }

private:
    void require(bool condition, char const* problem) { _problem += condition ? "" : problem; }

    void claim(std::size_t bucket) {
        if (_map.is_claimed(bucket)) {
            require(_map.claim(bucket), "a second claim fails; ");
            return;
        }
        auto const choice = static_cast<LeaseChoice>(_random() % 3);
        compare_room_after_earlier(bucket);
        bool const expected = _model.has_room(bucket, choice);
        bool const is_own_free = _model.is_free(_plan.places[bucket]);
        std::size_t const elsewhere = _model.elsewhere(bucket, choice);
        require(_map.claim(bucket, choice) == expected, "room is found wrongly; ");
        require(_map.is_claimed(bucket) == expected, "is_claimed is wrong; ");
        _refused += expected ? 0 : 1;
        if (!expected || _plan.places[bucket].is_empty()) {
            return;
        }
        std::size_t const begin = _map.begin(bucket);
        std::size_t const end = *_model.cuts.lower_bound(begin + _plan.places[bucket].size());
        Range const claimed{begin, end}; // whole parts between cuts
        require(claimed.end <= _plan.elements, "a claim ends after the buffer; ");
        require(_model.is_free(claimed), "two claims overlap; ");
        require(!is_own_free || begin == _plan.places[bucket].begin, "its place is not used; ");
        require(is_own_free || choice != LeaseChoice::spare_places
                    || begin >= _plan.planned_elements(),
                "the place of another is used; ");
        require(is_own_free || claimed.size() == elsewhere, "another part fits better; ");
        _moved += is_own_free ? 0 : 1;
        _model.claimed[bucket] = claimed;
        _model.set_holder(claimed, bucket);
    }

    /// Ends the claims of all buckets before this one in a copy of the model.
    void compare_room_after_earlier(std::size_t bucket) {
        Model later = _model;
        for (std::size_t earlier = 0; earlier < bucket; ++earlier) {
            later.set_holder(later.claimed[earlier], none);
            later.claimed[earlier] = {};
        }
        require(_map.has_room_after_earlier(bucket)
                    == later.has_room(bucket, LeaseChoice::any_place),
                "later room is found wrongly; ");
    }

    void use(std::size_t bucket) {
        if (!_map.is_claimed(bucket)) {
            return;
        }
        std::size_t const number = _model.before.size();
        Uses before;
        _map.use(bucket, [&](std::size_t user) {
            if (std::size_t const last = _model.last_use[user]; last != none) {
                before.insert(last);
                before.insert(_model.before[last].begin(), _model.before[last].end());
            }
        });
        Range const claimed = _model.claimed[bucket];
        for (std::size_t at = claimed.begin / unit; at < claimed.end / unit; ++at) {
            require(_model.user[at] == none || before.count(_model.user[at]) == 1,
                    "a use before is not waited for; ");
            _model.user[at] = number;
        }
        _model.before.push_back(before);
        _model.last_use[bucket] = number;
    }

    void free(std::size_t bucket) {
        _map.free(bucket);
        require(!_map.is_claimed(bucket), "is_claimed is wrong; ");
        _model.set_holder(_model.claimed[bucket], none);
        _model.claimed[bucket] = {};
    }

    std::mt19937_64 _random;
    LeasePlan _plan;
    LeaseMap _map;
    Model _model;
    std::string _problem;
    std::size_t _refused = 0;
    std::size_t _moved = 0;
};

} // namespace

TEST_CASE("Random claims never overlap, fail only without room, and wait for all uses before") {
    std::size_t refused = 0;
    std::size_t moved = 0;
    for (std::uint64_t seed = 0; seed < 3000; ++seed) {
        INFO("seed " << seed);
        Comparison comparison(seed);
        CHECK(comparison.run() == "");
        refused += comparison.refused();
        moved += comparison.moved();
    }
    CHECK(refused > 1000);
    CHECK(moved > 1000);
}

} // namespace zero::test::lease_map_test
