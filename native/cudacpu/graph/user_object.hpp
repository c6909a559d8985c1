// User objects: what clients let graphs keep alive. What does not live here: graphs.
#pragma once
#include <map>
#include <memory>

#include "api/api.hpp"

namespace cudacpu {

struct UserObject;

// References that a graph holds. Copies hold as many; the destructor gives them up.
class UserReferences {
 public:
  UserReferences() = default;
  UserReferences(const UserReferences& other);
  UserReferences& operator=(const UserReferences&) = delete;
  ~UserReferences();
  void add(const std::shared_ptr<UserObject>& object, unsigned count, bool move);
  bool remove(const std::shared_ptr<UserObject>& object, unsigned count);  // false: not that many are held
  void include(const UserReferences& other);

 private:
  std::map<std::shared_ptr<UserObject>, uint64_t> counts_;
};

}  // namespace cudacpu
