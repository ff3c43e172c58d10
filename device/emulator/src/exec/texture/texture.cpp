#include "texture.hpp"

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace aicf::emu {
namespace {

// Objects are small numbers, as on hardware, told apart by parity so that a surface is never taken for a texture.
template <class Descriptor, uint64_t kFirst>
class ObjectTable {
public:
    uint64_t add(Descriptor descriptor) {
        std::unique_lock lock(mutex_);
        const uint64_t object = next_;
        next_ += 2;
        objects_.emplace(object, std::make_unique<Descriptor>(std::move(descriptor)));
        return object;
    }
    bool remove(uint64_t object) {
        std::unique_lock lock(mutex_);
        return objects_.erase(object) != 0;
    }
    const Descriptor* find(uint64_t object) const {
        std::shared_lock lock(mutex_);
        const auto found = objects_.find(object);
        return found == objects_.end() ? nullptr : found->second.get();
    }

private:
    mutable std::shared_mutex mutex_;
    std::unordered_map<uint64_t, std::unique_ptr<Descriptor>> objects_;
    uint64_t next_ = kFirst;
};

ObjectTable<TextureDescriptor, 1>& textures() {
    static auto* table = new ObjectTable<TextureDescriptor, 1>;
    return *table;
}

ObjectTable<ImageDescriptor, 2>& surfaces() {
    static auto* table = new ObjectTable<ImageDescriptor, 2>;
    return *table;
}

}  // namespace

const TextureDescriptor* find_texture(uint64_t object) { return textures().find(object); }
const ImageDescriptor* find_surface(uint64_t object) { return surfaces().find(object); }
uint64_t add_texture(TextureDescriptor descriptor) { return textures().add(std::move(descriptor)); }
uint64_t add_surface(ImageDescriptor descriptor) { return surfaces().add(std::move(descriptor)); }
bool remove_texture(uint64_t object) { return textures().remove(object); }
bool remove_surface(uint64_t object) { return surfaces().remove(object); }

}  // namespace aicf::emu
